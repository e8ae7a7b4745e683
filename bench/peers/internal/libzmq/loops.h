#ifndef LOOPS_H
#define LOOPS_H

#include <stddef.h>
#include <stdint.h>

/* Every loop returns 0, or libzmq's errno. Times are in nanoseconds. */

/* loop_send sends messages of size bytes until sending fails. */
int loop_send(void *socket, const void *bytes, size_t size);

/* loop_recv waits for a message, receives for warm, and then counts the
   messages that arrive during time. It looks at the clock every stride messages. */
int loop_recv(void *socket, size_t size, int64_t warm, int64_t time, int stride, int64_t *count, int64_t *elapsed);

/* loop_request sends requests of size bytes, each after the reply to the one
   before, for warm, and then counts replies during time. */
int loop_request(void *socket, const void *bytes, size_t size, int64_t warm, int64_t time, int64_t *count, int64_t *elapsed);

/* loop_reply sends every request back until that fails. */
int loop_reply(void *socket, size_t size);

#endif
