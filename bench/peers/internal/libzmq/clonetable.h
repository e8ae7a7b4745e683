#ifndef CLONETABLE_H
#define CLONETABLE_H

#include "clone.h"

/* Open addressing; a pair without a key is free. The benchmark never deletes. */
struct clone_pair {
	uint64_t hash;
	char *key;
	void *value;
	size_t key_size, value_size;
};

struct clone_table {
	struct clone_pair *pairs;
	size_t slots; /* a power of two */
	size_t used;
};

/* clone_table_put stores copies. The size of a key is above 0. */
void clone_table_put(struct clone_table *t, const char *key, size_t size, const void *value, size_t value_size);

#endif
