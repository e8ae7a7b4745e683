/* A CHP server of the ZeroMQ Guide's design (model 5 of its Clone pattern), on CZMQ: a
   reactor calls a handler for each message, a message is a list of frames, and the map is
   a hash table of messages. It prints its endpoints, for snapshots, updates and the
   collector, and runs until it is killed. */

#include <czmq.h>

enum { key_frame, sequence_frame, uuid_frame, properties_frame, value_frame, frames };

enum {
	interval = 100, /* milliseconds between two heartbeats */
	high_water_mark = 100000 /* messages */
};

struct server {
	zsock_t *snapshot, *publisher, *collector;
	zhashx_t *map; /* of struct update, by key */
	int64_t sequence;
};

/* update is a message about a key. */
struct update {
	char *key;
	zframe_t *frames[frames];
};

static void update_destroy(void **p)
{
	struct update *u = *p;
	int i;
	if (u == NULL)
		return;
	for (i = 0; i < frames; i++)
		zframe_destroy(&u->frames[i]);
	free(u->key);
	free(u);
	*p = NULL;
}

/* update_receive receives a message. It returns NULL for one of another form. */
static struct update *update_receive(zsock_t *from)
{
	struct update *u = NULL;
	zmsg_t *m = zmsg_recv(from);
	int i;
	if (m != NULL && zmsg_size(m) == frames && zframe_size(zmsg_first(m)) > 0) {
		u = zmalloc(sizeof *u);
		for (i = 0; i < frames; i++)
			u->frames[i] = zmsg_pop(m);
		u->key = zframe_strdup(u->frames[key_frame]);
	}
	zmsg_destroy(&m);
	return u;
}

static zframe_t *sequence_of(int64_t n)
{
	byte b[8];
	int i;
	for (i = 7; i >= 0; i--, n >>= 8)
		b[i] = (byte) n;
	return zframe_new(b, sizeof b);
}

/* update_send sends a copy. */
static void update_send(struct update *u, zsock_t *to)
{
	int i;
	for (i = 0; i < frames; i++)
		zframe_send(&u->frames[i], to, ZFRAME_REUSE | (i < frames - 1 ? ZFRAME_MORE : 0));
}

/* send_mark sends a message that is not about a key. */
static void send_mark(zsock_t *to, const char *name, int64_t sequence, const char *value)
{
	zmsg_t *m = zmsg_new();
	zframe_t *n = sequence_of(sequence);
	zmsg_addstr(m, name);
	zmsg_append(m, &n);
	zmsg_addmem(m, "", 0);
	zmsg_addmem(m, "", 0);
	zmsg_addstr(m, value);
	zmsg_send(&m, to);
}

static int on_request(zloop_t *loop, zsock_t *socket, void *arg)
{
	struct server *s = arg;
	zframe_t *client = zframe_recv(socket);
	char *request = zstr_recv(socket), *subtree = NULL;
	struct update *u;
	(void) loop;
	if (request != NULL && zsock_rcvmore(socket))
		subtree = zstr_recv(socket);
	if (subtree != NULL && streq(request, "ICANHAZ?")) {
		for (u = zhashx_first(s->map); u != NULL; u = zhashx_next(s->map)) {
			if (strncmp(u->key, subtree, strlen(subtree)) != 0)
				continue;
			zframe_send(&client, socket, ZFRAME_REUSE | ZFRAME_MORE);
			update_send(u, socket);
		}
		zframe_send(&client, socket, ZFRAME_REUSE | ZFRAME_MORE);
		send_mark(socket, "KTHXBAI", s->sequence, subtree);
	}
	zstr_free(&request);
	zstr_free(&subtree);
	zframe_destroy(&client);
	return 0;
}

static int on_update(zloop_t *loop, zsock_t *socket, void *arg)
{
	struct server *s = arg;
	struct update *u = update_receive(socket);
	(void) loop;
	if (u == NULL)
		return 0;
	zframe_destroy(&u->frames[sequence_frame]);
	u->frames[sequence_frame] = sequence_of(++s->sequence);
	update_send(u, s->publisher);
	zhashx_update(s->map, u->key, u); /* destroys the previous one */
	return 0;
}

static int on_interval(zloop_t *loop, int timer, void *arg)
{
	struct server *s = arg;
	(void) loop, (void) timer;
	send_mark(s->publisher, "HUGZ", s->sequence, "");
	return 0;
}

static zsock_t *bound(int type)
{
	zsock_t *s = zsock_new(type);
	zsock_set_sndhwm(s, high_water_mark);
	zsock_set_rcvhwm(s, high_water_mark);
	if (type == ZMQ_PUB)
		zsock_set_xpub_nodrop(s, 1); /* nothing is lost; the guide's drops */
	if (zsock_bind(s, "tcp://127.0.0.1:*") < 0)
		exit(1);
	return s;
}

int main(void)
{
	struct server s = {0};
	zloop_t *loop = zloop_new();
	s.map = zhashx_new();
	zhashx_set_destructor(s.map, update_destroy);
	s.snapshot = bound(ZMQ_ROUTER);
	s.publisher = bound(ZMQ_PUB);
	s.collector = bound(ZMQ_PULL);
	zloop_reader(loop, s.snapshot, on_request, &s);
	zloop_reader(loop, s.collector, on_update, &s);
	zloop_timer(loop, interval, 0, on_interval, &s);
	printf("%s %s %s\n", zsock_endpoint(s.snapshot), zsock_endpoint(s.publisher), zsock_endpoint(s.collector));
	fflush(stdout);
	zloop_start(loop);
	return 1;
}
