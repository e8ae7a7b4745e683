#include "clonetable.h"

#include <stdlib.h>
#include <string.h>

static uint64_t hash(const char *key, size_t size)
{
	uint64_t h = 0xcbf29ce484222325u;
	size_t i;
	for (i = 0; i < size; i++)
		h = (h ^ (unsigned char) key[i]) * 0x100000001b3u;
	return h ^ h >> 32;
}

struct clone_table *clone_table_new(void)
{
	struct clone_table *t = calloc(1, sizeof *t);
	t->slots = 1 << 15;
	t->pairs = calloc(t->slots, sizeof *t->pairs);
	return t;
}

/* find returns the pair of the key, or the free one for it. */
static struct clone_pair *find(struct clone_table *t, uint64_t h, const char *key, size_t size)
{
	size_t i = h & (t->slots - 1);
	for (;;) {
		struct clone_pair *p = &t->pairs[i];
		if (p->key == NULL || (p->hash == h && p->key_size == size && memcmp(p->key, key, size) == 0))
			return p;
		i = (i + 1) & (t->slots - 1);
	}
}

static void grow(struct clone_table *t)
{
	struct clone_table bigger = *t;
	size_t i;
	bigger.slots *= 2;
	bigger.pairs = calloc(bigger.slots, sizeof *bigger.pairs);
	for (i = 0; i < t->slots; i++)
		if (t->pairs[i].key != NULL)
			*find(&bigger, t->pairs[i].hash, t->pairs[i].key, t->pairs[i].key_size) = t->pairs[i];
	free(t->pairs);
	*t = bigger;
}

void clone_table_put(struct clone_table *t, const char *key, size_t size, const void *value, size_t value_size)
{
	uint64_t h = hash(key, size);
	struct clone_pair *p = find(t, h, key, size);
	if (p->key == NULL) {
		if (2 * ++t->used > t->slots) {
			grow(t);
			p = find(t, h, key, size);
		}
		p->hash = h;
		p->key = malloc(size);
		p->key_size = size;
		memcpy(p->key, key, size);
	}
	if (p->value == NULL || p->value_size != value_size) {
		free(p->value);
		p->value = malloc(value_size > 0 ? value_size : 1);
		p->value_size = value_size;
	}
	memcpy(p->value, value, value_size);
}

const void *clone_table_get(struct clone_table *t, const char *key, size_t size, size_t *value_size)
{
	struct clone_pair *p = find(t, hash(key, size), key, size);
	if (p->key == NULL)
		return NULL;
	*value_size = p->value_size;
	return p->value;
}
