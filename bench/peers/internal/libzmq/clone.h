#ifndef CLONE_H
#define CLONE_H

#include <stddef.h>
#include <stdint.h>

/* The Clone pattern of the ZeroMQ Guide, model 5 (RFC 12), on libzmq's plain
   calls. Each of these is for one thread at a time. */

/* clone_table is a hash table from keys to values. */
struct clone_table;

struct clone_table *clone_table_new(void);

/* clone_table_get returns a value, which is lent until the next change, or NULL. */
const void *clone_table_get(struct clone_table *t, const char *key, size_t size, size_t *value_size);

/* clone_serve numbers, stores and publishes the updates that come from the
   collector, a PULL, and answers requests for snapshots at a ROUTER; publisher is
   an XPUB. In between it publishes HUGZ, heartbeats. It returns libzmq's errno. */
int clone_serve(void *snapshot, void *publisher, void *collector);

/* clone_join waits for a heartbeat on a SUB, so that it is known to be subscribed,
   and puts a snapshot from the server, through a DEALER, into the table. sequence
   becomes that of the snapshot. It waits at most wait milliseconds at a time, and
   returns an errno: EAGAIN if nothing came. */
int clone_join(void *subscriber, void *snapshot, struct clone_table *t, int64_t *sequence, int wait);

/* Updates go between C and Go in a block of records, each two lengths, four bytes
   each in the machine's order, and then key and value. */

/* clone_send sends the records of a block through a PUSH, and waits where it must.
   It returns 0 or libzmq's errno. */
int clone_send(void *collector, const void *block, size_t size);

/* clone_receive waits for an update, at most wait milliseconds, takes the others that have
   come, puts all into the table and as records into the block, as long as there are 4096
   bytes for the next one; a larger record is an error. It returns 0 or libzmq's errno,
   EAGAIN if nothing came. */
int clone_receive(void *subscriber, struct clone_table *t, int64_t *sequence, int wait,
		  void *block, size_t capacity, size_t *size);

#endif
