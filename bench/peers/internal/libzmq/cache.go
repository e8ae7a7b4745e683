package libzmq

/*
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <zmq.h>

// The guide's last-value cache: messages of two frames, an exact look-up.

enum { buckets = 1 << 16 };

struct value {
	struct value *next;
	size_t topic_size, size, room;
	char *topic, *data;
};

static struct value **find(struct value **table, const char *topic, size_t size)
{
	unsigned long hash = 5381;
	struct value **at;
	size_t i;

	for (i = 0; i < size; i++)
		hash = 33 * hash + (unsigned char)topic[i];
	for (at = &table[hash % buckets]; *at; at = &(*at)->next)
		if ((*at)->topic_size == size && memcmp((*at)->topic, topic, size) == 0)
			break;
	return at;
}

static void keep(struct value **table, zmq_msg_t *topic, zmq_msg_t *data)
{
	size_t topic_size = zmq_msg_size(topic), size = zmq_msg_size(data);
	struct value **at = find(table, zmq_msg_data(topic), topic_size), *v = *at;

	if (!v) {
		*at = v = calloc(1, sizeof *v);
		v->topic = malloc(topic_size + 1);
		memcpy(v->topic, zmq_msg_data(topic), topic_size);
		v->topic_size = topic_size;
	}
	if (v->room < size) {
		v->data = realloc(v->data, size);
		v->room = size;
	}
	memcpy(v->data, zmq_msg_data(data), size);
	v->size = size;
}

// cache runs until the sockets' context ends.
static void cache(void *front, void *back)
{
	struct value **table = calloc(buckets, sizeof *table);
	zmq_pollitem_t items[] = {{front, 0, ZMQ_POLLIN, 0}, {back, 0, ZMQ_POLLIN, 0}};
	zmq_msg_t topic, data;

	zmq_msg_init(&topic);
	zmq_msg_init(&data);
	for (;;) {
		if (zmq_poll(items, 2, -1) < 0 && zmq_errno() != EINTR)
			break;
		while (zmq_msg_recv(&topic, front, ZMQ_DONTWAIT) >= 0) {
			if (!zmq_msg_more(&topic))
				continue;
			zmq_msg_recv(&data, front, 0);
			keep(table, &topic, &data);
			zmq_msg_send(&topic, back, ZMQ_SNDMORE);
			zmq_msg_send(&data, back, 0);
		}
		while (zmq_msg_recv(&topic, back, ZMQ_DONTWAIT) >= 0) {
			const char *frame = zmq_msg_data(&topic);
			size_t size = zmq_msg_size(&topic);
			struct value *v;

			if (size == 0 || frame[0] != 1)
				continue;
			v = *find(table, frame + 1, size - 1);
			if (v) {
				zmq_send(back, v->topic, v->topic_size, ZMQ_SNDMORE);
				zmq_send(back, v->data, v->size, 0);
			}
		}
	}
	zmq_msg_close(&topic);
	zmq_msg_close(&data);
}
*/
import "C"

import "runtime"

// Cache is the guide's last-value cache between a SUB and an XPUB. It runs until their
// context ends, and does not free the messages that it keeps.
func Cache(front, back Socket) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	C.cache(front.p, back.p)
}
