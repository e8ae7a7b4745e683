package member

import "time"

const (
	// windowBytes is how much is relayed ahead of the leader's answers.
	windowBytes = 4 << 20
	// resendBytes is how much of what is lost is sent again in an item.
	resendBytes = 256 << 10
	// relayBytes is how much is kept for the leader; beyond it the clients of this node wait.
	relayBytes = 16 << 20
	// orderBytes bounds what is kept of the notes of one node, which are a window at a time, and of one that is repeated.
	orderBytes = 2*windowBytes + maxItem
	// maxItem bounds an item: a client's update, or as much as a batch has.
	maxItem = 32 << 20
	// maxNodes bounds the nodes whose notes are taken.
	maxNodes = 1024
	// itemBytes is the memory of an item without its bytes.
	itemBytes = 256
	// answerBytes bounds the values in the answers to the requests of an item.
	answerBytes = 1 << 20
)

const (
	// lookEvery is how often a member looks whether something is late.
	lookEvery = 100 * time.Millisecond
	// repeatAfter is after how long without an answer a relay sends again.
	repeatAfter = time.Second
	// leaderless is how long a node serves that hears no leader.
	leaderless = 2 * time.Second
	// electedPause is the pause before a node that was elected is asked again whether it orders updates.
	electedPause = time.Millisecond
	// askPause is the pause before a node asks again whether it has all that is committed.
	askPause = 20 * time.Millisecond
)

const (
	// maxAsks bounds the requests for the map that wait, maxAsksEach those of a client.
	maxAsks     = 64 << 10
	maxAsksEach = 64
)
