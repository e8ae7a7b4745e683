package kvmsg

import "hash/maphash"

// Keys are hashed with a seed drawn at start, so that nobody outside can choose
// keys that collide. The seed is one for the process: a hash computed in the
// goroutine that read a message is good for every store it is applied to.
var hashSeed = maphash.MakeSeed()

// The two low bits of a hash are given up for facts about the message that
// travel with it in buf.Span.Tag and save the sequencer a look at its frames.
const (
	TagProperties = 1 << 0                    // the properties are not empty: look for a ttl
	TagDelete     = 1 << 1                    // the value is empty: the message deletes its key
	TagFlags      = TagProperties | TagDelete // both; the rest of a tag is the hash
)

// HashKey returns the hash of key, with the flag bits zero.
func HashKey(key []byte) uint64 {
	return maphash.Bytes(hashSeed, key) &^ TagFlags
}
