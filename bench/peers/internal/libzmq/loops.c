#include "loops.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>
#include <zmq.h>

static int64_t now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t) t.tv_sec * 1000000000 + t.tv_nsec;
}

int loop_send(void *socket, const void *bytes, size_t size)
{
	for (;;)
		if (zmq_send(socket, bytes, size, 0) < 0 && zmq_errno() != EINTR)
			return zmq_errno();
}

/* receive receives one message of size bytes. */
static int receive(void *socket, void *bytes, size_t size)
{
	int n;
	do
		n = zmq_recv(socket, bytes, size, 0);
	while (n < 0 && zmq_errno() == EINTR);
	if (n < 0)
		return zmq_errno();
	return (size_t) n == size ? 0 : EBADMSG;
}

int loop_recv(void *socket, size_t size, int64_t warm, int64_t time, int stride, int64_t *count, int64_t *elapsed)
{
	char *bytes = malloc(size + 1);
	int64_t start, end, n = 0;
	int err = receive(socket, bytes, size);
	int warming = 1, i;

	for (start = now(); err == 0;) {
		for (i = 0; i < stride && err == 0; i++)
			err = receive(socket, bytes, size);
		end = now();
		if (warming) {
			if (end - start >= warm) {
				warming = 0;
				start = end;
			}
			continue;
		}
		n += stride;
		if (end - start >= time)
			break;
	}
	free(bytes);
	*count = n;
	*elapsed = end - start;
	return err;
}

int loop_request(void *socket, const void *bytes, size_t size, int64_t warm, int64_t time, int64_t *count, int64_t *elapsed)
{
	char *reply = malloc(size + 1);
	int64_t start = now(), end = start, n = 0;
	int warming = 1, err = 0;

	for (;;) {
		while (zmq_send(socket, bytes, size, 0) < 0)
			if (zmq_errno() != EINTR) {
				err = zmq_errno();
				break;
			}
		if (err == 0)
			err = receive(socket, reply, size);
		if (err != 0)
			break;
		end = now();
		if (warming) {
			if (end - start >= warm) {
				warming = 0;
				start = end;
			}
			continue;
		}
		n++;
		if (end - start >= time)
			break;
	}
	free(reply);
	*count = n;
	*elapsed = end - start;
	return err;
}

int loop_reply(void *socket, size_t size)
{
	char *bytes = malloc(size + 1);
	int err = 0;

	while (err == 0) {
		err = receive(socket, bytes, size);
		if (err == 0 && zmq_send(socket, bytes, size, 0) < 0)
			err = zmq_errno();
	}
	free(bytes);
	return err;
}
