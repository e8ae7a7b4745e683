#ifndef BLACKBOX_H
#define BLACKBOX_H

#include <stdint.h>

/* A message is of size bytes and has little-endian numbers: four bytes at
   at_key, eight each at at_round and at_value. */
struct blackbox {
	const char *const *endpoints; /* of each shard */
	const char *const *topics; /* of shard i: topics[first[i]] to topics[first[i + 1] - 1] */
	const int *first;
	int shards;
	int workers; /* of each shard; 0: the shards do the work */
	int64_t count;
	int size, keys, rounds;
	int at_key, at_round, at_value;

	/* results */
	int64_t messages, wrong, elapsed, processor; /* times in nanoseconds */
	uint64_t sum;
};

/* blackbox receives count messages in the guide's design: in each shard's thread
   a SUB, which the thread works on or passes on by PUSH to worker threads, each of
   which has a PULL that is connected to all shards. Order is checked if it is kept, with one
   worker at most in all. It returns 0 or libzmq's errno. The threads go on until the
   process ends. */
int blackbox(struct blackbox *b);

#endif
