#include "blackbox.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <zmq.h>

enum { hwm = 100000, stride = 256 };

struct run {
	struct blackbox *b;
	void *context;
	int ordered;
	pthread_mutex_t mu;
	pthread_cond_t done;
	int started, ended, ready, err;
	int64_t begin, begin_cpu;
};

struct thread {
	struct run *run;
	int number;
	int64_t n, wrong; /* not yet added to the results */
	uint64_t sum;
	uint64_t *next; /* round of each key */
};

static int64_t now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t) t.tv_sec * 1000000000 + t.tv_nsec;
}

static int64_t processor(void)
{
	struct rusage u;
	getrusage(RUSAGE_SELF, &u);
	return ((int64_t) u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1000000000 +
	       ((int64_t) u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1000;
}

static void fail(struct run *r)
{
	int err = zmq_errno();
	pthread_mutex_lock(&r->mu);
	r->err = err ? err : EIO;
	pthread_cond_broadcast(&r->done);
	pthread_mutex_unlock(&r->mu);
}

static void start(struct run *r)
{
	pthread_mutex_lock(&r->mu);
	if (!r->started) {
		r->started = 1;
		r->begin = now();
		r->begin_cpu = processor();
	}
	pthread_mutex_unlock(&r->mu);
}

/* add adds a thread's counts to the results. */
static void add(struct thread *t)
{
	struct run *r = t->run;
	struct blackbox *b = r->b;
	pthread_mutex_lock(&r->mu);
	b->messages += t->n;
	b->wrong += t->wrong;
	b->sum += t->sum;
	t->n = t->wrong = 0;
	t->sum = 0;
	if (b->messages >= b->count && !r->ended) {
		r->ended = 1;
		b->elapsed = now() - r->begin;
		b->processor = processor() - r->begin_cpu;
		pthread_cond_broadcast(&r->done);
	}
	pthread_mutex_unlock(&r->mu);
}

/* work is the work for one message: the same as on our side. */
static void work(struct thread *t, zmq_msg_t *m)
{
	struct blackbox *b = t->run->b;
	const char *p = zmq_msg_data(m);
	uint32_t key;
	uint64_t round, value;
	if (zmq_msg_size(m) != (size_t) b->size || zmq_msg_more(m)) {
		t->wrong++;
		return;
	}
	memcpy(&key, p + b->at_key, sizeof key);
	memcpy(&round, p + b->at_round, sizeof round);
	memcpy(&value, p + b->at_value, sizeof value);
	if (key >= (uint32_t) b->keys) {
		t->wrong++;
		return;
	}
	if (round != t->next[key] && t->run->ordered)
		t->wrong++;
	t->next[key] = (round + 1) % b->rounds;
	t->sum += value;
}

/* receive receives a message. Before it waits for one, it adds up. */
static int receive(struct thread *t, zmq_msg_t *m, void *socket, int counts)
{
	int n = zmq_msg_recv(m, socket, ZMQ_DONTWAIT);
	if (n < 0 && zmq_errno() == EAGAIN) {
		if (counts && t->n > 0)
			add(t);
		do
			n = zmq_msg_recv(m, socket, 0);
		while (n < 0 && zmq_errno() == EINTR);
	}
	return n;
}

/* consume receives messages from a socket and does their work. */
static void consume(struct thread *t, void *socket)
{
	zmq_msg_t m;
	int first = 1;
	zmq_msg_init(&m);
	t->next = calloc(t->run->b->keys, sizeof *t->next);
	while (receive(t, &m, socket, 1) >= 0) {
		if (first) {
			start(t->run);
			first = 0;
		}
		work(t, &m);
		if (++t->n == stride)
			add(t);
	}
	fail(t->run);
}

static void *worker(void *arg)
{
	struct thread *t = arg;
	struct run *r = t->run;
	void *pull = zmq_socket(r->context, ZMQ_PULL);
	int limit = hwm, i;
	char name[32];
	zmq_setsockopt(pull, ZMQ_RCVHWM, &limit, sizeof limit);
	for (i = 0; i < r->b->shards; i++) {
		snprintf(name, sizeof name, "inproc://%d", i);
		if (zmq_connect(pull, name) < 0) {
			fail(r);
			return NULL;
		}
	}
	pthread_mutex_lock(&r->mu);
	r->ready++;
	pthread_cond_broadcast(&r->done);
	pthread_mutex_unlock(&r->mu);
	consume(t, pull);
	return NULL;
}

static void *shard(void *arg)
{
	struct thread *t = arg;
	struct run *r = t->run;
	struct blackbox *b = r->b;
	void *sub = zmq_socket(r->context, ZMQ_SUB), *push = NULL;
	int limit = hwm, i;
	char name[32];
	zmq_msg_t m;
	zmq_setsockopt(sub, ZMQ_RCVHWM, &limit, sizeof limit);
	for (i = b->first[t->number]; i < b->first[t->number + 1]; i++)
		zmq_setsockopt(sub, ZMQ_SUBSCRIBE, b->topics[i], strlen(b->topics[i]));
	if (b->workers > 0) {
		push = zmq_socket(r->context, ZMQ_PUSH);
		zmq_setsockopt(push, ZMQ_SNDHWM, &limit, sizeof limit);
		snprintf(name, sizeof name, "inproc://%d", t->number);
		if (zmq_bind(push, name) < 0) {
			fail(r);
			return NULL;
		}
		/* All workers come before the first message. */
		pthread_mutex_lock(&r->mu);
		while (r->ready < b->workers * b->shards)
			pthread_cond_wait(&r->done, &r->mu);
		pthread_mutex_unlock(&r->mu);
	}
	if (zmq_connect(sub, b->endpoints[t->number]) < 0) {
		fail(r);
		return NULL;
	}
	if (push == NULL) {
		consume(t, sub);
		return NULL;
	}
	zmq_msg_init(&m);
	while (receive(t, &m, sub, 0) >= 0)
		while (zmq_msg_send(&m, push, 0) < 0)
			if (zmq_errno() != EINTR) {
				fail(r);
				return NULL;
			}
	fail(r);
	return NULL;
}

static int launch(struct run *r, void *(*f)(void *), int number)
{
	pthread_t id;
	struct thread *t = calloc(1, sizeof *t);
	t->run = r;
	t->number = number;
	return pthread_create(&id, NULL, f, t);
}

int blackbox(struct blackbox *b)
{
	struct run *r = calloc(1, sizeof *r);
	int i, err = 0;
	r->b = b;
	r->context = zmq_ctx_new();
	zmq_ctx_set(r->context, ZMQ_IO_THREADS, b->shards);
	r->ordered = b->workers * b->shards <= 1 || b->workers == 0;
	pthread_mutex_init(&r->mu, NULL);
	pthread_cond_init(&r->done, NULL);
	for (i = 0; i < b->shards && err == 0; i++)
		err = launch(r, shard, i);
	for (i = 0; i < b->workers * b->shards && err == 0; i++)
		err = launch(r, worker, i);
	if (err != 0)
		return err;
	pthread_mutex_lock(&r->mu);
	while (!r->ended && r->err == 0)
		pthread_cond_wait(&r->done, &r->mu);
	err = r->err;
	pthread_mutex_unlock(&r->mu);
	return err;
}
