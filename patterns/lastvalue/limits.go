package lastvalue

// Defaults of Options.
const (
	DefaultMaxTopics = 1 << 20   // topics
	DefaultMaxBytes  = 256 << 20 // bytes
)

const (
	maxEntries = 1<<31 - 2 // topics: their numbers have 32 bits
	maxMessage = 1 << 30   // bytes of a message: the limit of the store
	// topicCost is the memory of a topic without its name and message: its entry, its
	// items in tree and index, and the allocator's rounding.
	topicCost  = 112
	treeDegree = 32 // items in a node of the tree
)

const (
	// chunkBytes bounds a chunk; its last message may exceed it.
	chunkBytes = 64 << 10
	// chunkTopics bounds the prefixes and topics that fill examines for a chunk, so
	// that publishing is not delayed for long.
	chunkTopics = 4096
	// keepScratch is the largest scratch buffer that is kept.
	keepScratch = 1 << 20
)
