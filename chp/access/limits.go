package access

import "time"

const (
	// maxFile bounds the file, in bytes.
	maxFile = 4 << 20
	// maxName bounds the name of a user or a group, in bytes.
	maxName = 64
	// leastToken is the least number of characters of a token: what is shorter can be guessed.
	leastToken = 20
	// tokenBytes is the number of random bytes of a new token.
	tokenBytes = 32
	// maxPassword is the number of bytes that bcrypt looks at.
	maxPassword = 72
	// mostCost bounds the cost of a hash: each step doubles the time, and 10 takes a twentieth of a second. Nothing ends a
	// comparison that has begun.
	mostCost = 14
	// maxHashes bounds the passwords that are compared at a time: each takes a processor for a twentieth of a second.
	maxHashes = 2
	// maxWaiting bounds those of one address that are compared or wait for it.
	maxWaiting = 16
	// maxCompared bounds the wrong passwords that are remembered.
	maxCompared = 1024
	// DefaultInterval is how often [File.Watch] looks at the file.
	DefaultInterval = time.Second
)
