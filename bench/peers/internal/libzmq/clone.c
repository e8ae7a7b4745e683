#include "clone.h"
#include "clonetable.h"

#include <errno.h>
#include <string.h>
#include <time.h>
#include <zmq.h>

/* The frames of a message about a key. */
enum { key_frame, sequence_frame, uuid_frame, properties_frame, value_frame, frames };

enum {
	burst = 1000, /* updates between two looks at the other sockets */
	interval = 100, /* milliseconds between two heartbeats */
	most = 4096 /* bytes of a record */
};

static const char heartbeat[] = "HUGZ", request[] = "ICANHAZ?", end[] = "KTHXBAI";

static int64_t milliseconds(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t) t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static int failed(void)
{
	int err = zmq_errno();
	return err ? err : EIO;
}

static void number(unsigned char *to, int64_t n)
{
	int i;
	for (i = 7; i >= 0; i--, n >>= 8)
		to[i] = (unsigned char) n;
}

static int64_t numbered(const unsigned char *from)
{
	uint64_t n = 0;
	int i;
	for (i = 0; i < 8; i++)
		n = n << 8 | from[i];
	return (int64_t) n;
}

static int is(zmq_msg_t *m, const char *text)
{
	return zmq_msg_size(m) == strlen(text) && memcmp(zmq_msg_data(m), text, strlen(text)) == 0;
}

/* frame receives a frame, again after a signal. */
static int frame(zmq_msg_t *m, void *socket, int flags)
{
	int n;
	do
		n = zmq_msg_recv(m, socket, flags);
	while (n < 0 && zmq_errno() == EINTR);
	return n;
}

/* receive receives a message into the frames, which must be initialized. It returns
   0 or an errno: EAGAIN without a message, EPROTO for one of another number of
   frames, which is read to its end. */
static int receive(void *socket, zmq_msg_t *f, int wanted, int flags)
{
	int i, more = 1;
	for (i = 0; i < wanted && more; i++) {
		if (frame(&f[i], socket, i == 0 ? flags : 0) < 0)
			return failed();
		more = zmq_msg_more(&f[i]);
	}
	if (i == wanted && !more)
		return 0;
	while (more) {
		if (frame(&f[0], socket, 0) < 0)
			return failed();
		more = zmq_msg_more(&f[0]);
	}
	return EPROTO;
}

static int send_bytes(void *socket, const void *bytes, size_t size, int flags)
{
	int n;
	do
		n = zmq_send(socket, bytes, size, flags);
	while (n < 0 && zmq_errno() == EINTR);
	return n < 0 ? failed() : 0;
}

/* send_pair sends a message about a key, its frames one by one. */
static int send_pair(void *socket, const void *key, size_t key_size, int64_t sequence,
		     const void *uuid, size_t uuid_size, const void *value, size_t value_size)
{
	unsigned char n[8];
	int err;
	number(n, sequence);
	if ((err = send_bytes(socket, key, key_size, ZMQ_SNDMORE)) ||
	    (err = send_bytes(socket, n, sizeof n, ZMQ_SNDMORE)) ||
	    (err = send_bytes(socket, uuid, uuid_size, ZMQ_SNDMORE)) ||
	    (err = send_bytes(socket, "", 0, ZMQ_SNDMORE)))
		return err;
	return send_bytes(socket, value, value_size, 0);
}

/* publish passes the frames of an update on, without copying them. */
static int publish(void *socket, zmq_msg_t *f)
{
	int i, n;
	for (i = 0; i < frames; i++) {
		do
			n = zmq_msg_send(&f[i], socket, i < frames - 1 ? ZMQ_SNDMORE : 0);
		while (n < 0 && zmq_errno() == EINTR);
		if (n < 0)
			return failed();
	}
	return 0;
}

/* answer answers a request for a snapshot of a subtree. */
static int answer(void *socket, struct clone_table *t, int64_t sequence)
{
	zmq_msg_t f[3]; /* identity, request, subtree */
	const char *subtree;
	size_t i, size;
	int err;
	for (i = 0; i < 3; i++)
		zmq_msg_init(&f[i]);
	err = receive(socket, f, 3, ZMQ_DONTWAIT);
	if (err == 0 && is(&f[1], request)) {
		subtree = zmq_msg_data(&f[2]);
		size = zmq_msg_size(&f[2]);
		for (i = 0; i < t->slots && err == 0; i++) {
			struct clone_pair *p = &t->pairs[i];
			if (p->key == NULL || p->key_size < size || memcmp(p->key, subtree, size) != 0)
				continue;
			err = send_bytes(socket, zmq_msg_data(&f[0]), zmq_msg_size(&f[0]), ZMQ_SNDMORE);
			if (err == 0)
				err = send_pair(socket, p->key, p->key_size, sequence, "", 0, p->value, p->value_size);
		}
		if (err == 0)
			err = send_bytes(socket, zmq_msg_data(&f[0]), zmq_msg_size(&f[0]), ZMQ_SNDMORE);
		if (err == 0)
			err = send_pair(socket, end, strlen(end), sequence, "", 0, subtree, size);
	}
	for (i = 0; i < 3; i++)
		zmq_msg_close(&f[i]);
	return err == EPROTO || err == EAGAIN ? 0 : err;
}

/* collect takes the updates that have come, up to a burst. */
static int collect(void *collector, void *publisher, struct clone_table *t, int64_t *sequence)
{
	zmq_msg_t f[frames];
	int i, n, err = 0;
	for (i = 0; i < frames; i++)
		zmq_msg_init(&f[i]);
	for (n = 0; n < burst && err == 0; n++) {
		err = receive(collector, f, frames, ZMQ_DONTWAIT);
		if (err == 0 && (zmq_msg_size(&f[sequence_frame]) != 8 || zmq_msg_size(&f[key_frame]) == 0))
			err = EPROTO;
		if (err == EPROTO) {
			err = 0; /* RFC 12 has no answer for it */
			continue;
		}
		if (err != 0)
			break;
		clone_table_put(t, zmq_msg_data(&f[key_frame]), zmq_msg_size(&f[key_frame]),
				zmq_msg_data(&f[value_frame]), zmq_msg_size(&f[value_frame]));
		number(zmq_msg_data(&f[sequence_frame]), ++*sequence);
		err = publish(publisher, f);
	}
	for (i = 0; i < frames; i++)
		zmq_msg_close(&f[i]);
	return err == EAGAIN ? 0 : err;
}

/* subscribed reads subscriptions, which libzmq has taken note of already. */
static int subscribed(void *publisher)
{
	zmq_msg_t m;
	int n;
	zmq_msg_init(&m);
	while ((n = frame(&m, publisher, ZMQ_DONTWAIT)) >= 0)
		;
	n = failed();
	zmq_msg_close(&m);
	return n == EAGAIN ? 0 : n;
}

int clone_serve(void *snapshot, void *publisher, void *collector)
{
	zmq_pollitem_t items[] = {
		{snapshot, 0, ZMQ_POLLIN, 0}, {publisher, 0, ZMQ_POLLIN, 0}, {collector, 0, ZMQ_POLLIN, 0},
	};
	struct clone_table *t = clone_table_new();
	int64_t sequence = 0, due = milliseconds() + interval;
	int err = 0;
	while (err == 0) {
		int64_t wait = due - milliseconds();
		if (zmq_poll(items, 3, wait > 0 ? (long) wait : 0) < 0 && zmq_errno() != EINTR)
			return failed();
		if (milliseconds() >= due) {
			err = send_pair(publisher, heartbeat, strlen(heartbeat), sequence, "", 0, "", 0);
			due = milliseconds() + interval;
		}
		if (err == 0 && items[1].revents)
			err = subscribed(publisher);
		if (err == 0 && items[0].revents)
			err = answer(snapshot, t, sequence);
		if (err == 0 && items[2].revents)
			err = collect(collector, publisher, t, &sequence);
	}
	return err;
}

/* await waits for a message to receive. */
static int await(void *socket, int wait)
{
	zmq_pollitem_t item = {socket, 0, ZMQ_POLLIN, 0};
	int n = zmq_poll(&item, 1, wait);
	if (n < 0 && zmq_errno() != EINTR)
		return failed();
	return n > 0 ? 0 : EAGAIN;
}

int clone_join(void *subscriber, void *snapshot, struct clone_table *t, int64_t *sequence, int wait)
{
	zmq_msg_t f[frames];
	int i, err, joined = 0;
	for (i = 0; i < frames; i++)
		zmq_msg_init(&f[i]);
	/* Updates before the heartbeat are in the snapshot. */
	do {
		err = await(subscriber, wait);
		if (err == 0)
			err = receive(subscriber, f, frames, 0);
	} while (err == 0 && !is(&f[key_frame], heartbeat));
	if (err == 0)
		err = send_bytes(snapshot, request, strlen(request), ZMQ_SNDMORE);
	if (err == 0)
		err = send_bytes(snapshot, "", 0, 0);
	while (err == 0 && !joined) {
		err = await(snapshot, wait);
		if (err == 0)
			err = receive(snapshot, f, frames, 0);
		if (err == 0 && (zmq_msg_size(&f[sequence_frame]) != 8 || zmq_msg_size(&f[key_frame]) == 0))
			err = EPROTO;
		if (err != 0)
			break;
		joined = is(&f[key_frame], end);
		if (joined)
			*sequence = numbered(zmq_msg_data(&f[sequence_frame]));
		else
			clone_table_put(t, zmq_msg_data(&f[key_frame]), zmq_msg_size(&f[key_frame]),
					zmq_msg_data(&f[value_frame]), zmq_msg_size(&f[value_frame]));
	}
	for (i = 0; i < frames; i++)
		zmq_msg_close(&f[i]);
	return err;
}

int clone_send(void *collector, const void *block, size_t size)
{
	static int64_t updates; /* makes the UUIDs; there is one publisher in a process */
	unsigned char uuid[16] = {0};
	const char *p = block, *last = p + size;
	while (p < last) {
		uint32_t sizes[2];
		int err;
		memcpy(sizes, p, sizeof sizes);
		p += sizeof sizes;
		number(uuid + 8, ++updates);
		err = send_pair(collector, p, sizes[0], 0, uuid, sizeof uuid, p + sizes[0], sizes[1]);
		if (err != 0)
			return err;
		p += sizes[0] + sizes[1];
	}
	return 0;
}

int clone_receive(void *subscriber, struct clone_table *t, int64_t *sequence, int wait,
		  void *block, size_t capacity, size_t *size)
{
	zmq_msg_t f[frames];
	int i, err = 0;
	for (i = 0; i < frames; i++)
		zmq_msg_init(&f[i]);
	*size = 0;
	while (*size + most <= capacity) {
		uint32_t sizes[2], whole;
		char *p = (char *) block + *size;
		int64_t n;
		err = receive(subscriber, f, frames, ZMQ_DONTWAIT);
		if (err == EAGAIN && *size == 0) {
			err = await(subscriber, wait);
			if (err == 0)
				continue;
		}
		if (err != 0)
			break;
		if (is(&f[key_frame], heartbeat)) {
			err = EAGAIN; /* the caller may want to end */
			break;
		}
		if (zmq_msg_size(&f[sequence_frame]) != 8 || zmq_msg_size(&f[key_frame]) == 0) {
			err = EPROTO;
			break;
		}
		n = numbered(zmq_msg_data(&f[sequence_frame]));
		if (n <= *sequence)
			continue; /* it is in the snapshot */
		*sequence = n;
		sizes[0] = (uint32_t) zmq_msg_size(&f[key_frame]);
		sizes[1] = (uint32_t) zmq_msg_size(&f[value_frame]);
		whole = sizeof sizes + sizes[0] + sizes[1];
		if (whole > most) {
			err = EMSGSIZE;
			break;
		}
		clone_table_put(t, zmq_msg_data(&f[key_frame]), sizes[0], zmq_msg_data(&f[value_frame]), sizes[1]);
		memcpy(p, sizes, sizeof sizes);
		memcpy(p + sizeof sizes, zmq_msg_data(&f[key_frame]), sizes[0]);
		memcpy(p + sizeof sizes + sizes[0], zmq_msg_data(&f[value_frame]), sizes[1]);
		*size += whole;
	}
	for (i = 0; i < frames; i++)
		zmq_msg_close(&f[i]);
	return err == EAGAIN && *size > 0 ? 0 : err;
}
