package fanout

import "time"

const (
	// sharedTopics and sharedBytes bound the topics of a group that may have
	// several peers: another topic of one of them is another group's key.
	sharedTopics = 8
	sharedBytes  = 1 << 10
)

// manyGroups is the number of groups from which their tables are made anew when most of
// them have gone: a map and a slice keep the memory of what was in them.
const manyGroups = 1 << 10

const (
	// maxTopicBytes limits the size of all topics of one subscriber together.
	maxTopicBytes = 16 << 20
	// topicCost is the memory of a topic beside its bytes: nodes of the trie, and items in
	// the group's map. Its bytes are at most in the map, the trie and a group's key.
	topicCost   = 512
	topicCopies = 3
	// forgetBurst is how many topics of a peer that has gone are removed before
	// other goroutines can publish again.
	forgetBurst = 256
)

// maxCopies bounds the copies of a batch, and so the search for a copy that each
// group makes. A selection that many groups share is likely to be among the first.
const maxCopies = 8

// 1/totalStep of the bound is the least that may be queued between two additions,
// even if the bound is nearly reached.
const totalStep = 16

// quickTopic is the number of bytes of a topic that has compares at once.
const quickTopic = 8

// maxPause is the largest number of searches in turn that are not remembered. Where topics
// alternate, remembering costs more than it saves.
const maxPause = 255

const (
	// readingWindow is the minimum time between two checks of a peer.
	readingWindow = 20 * time.Millisecond
	// readingPatience is how long a peer counts as reading after a check has
	// found that it reads, and readingCredit how long after its queue was first
	// found to be long: a process that reads may get no processor for so long.
	readingPatience = time.Second
	readingCredit   = 300 * time.Millisecond
	// A peer reads if it takes at least 1/readingShare of the bytes sent to it.
	readingShare = 8
	// A queue is long if it has reached 1/readingFrom of its limit.
	readingFrom = 4
)
