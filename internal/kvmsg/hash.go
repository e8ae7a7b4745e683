package kvmsg

import "hash/maphash"

// hashSeed is chosen at random at start, so that no one can choose keys that collide.
// All stores of the process use it: a hash computed in the goroutine that read a
// message is valid in every store.
var hashSeed = maphash.MakeSeed()

// A tag (buf.Span.Tag) is the hash of a message's key with flags in its two low bits,
// which save the sequencer a look at the frames.
const (
	TagProperties = 1 << 0                    // the properties are not empty: there may be a ttl
	TagDelete     = 1 << 1                    // the value is empty: the message deletes its key
	TagFlags      = TagProperties | TagDelete // both; the rest of a tag is the hash
)

// flagsOf returns the flags of a message, given the sizes of its properties and value.
func flagsOf(props, value int) (flags uint64) {
	if props > 0 {
		flags = TagProperties
	}
	if value == 0 {
		flags |= TagDelete
	}
	return flags
}

// HashKey returns the hash of key, with the flag bits zero.
func HashKey(key []byte) uint64 {
	return maphash.Bytes(hashSeed, key) &^ TagFlags
}
