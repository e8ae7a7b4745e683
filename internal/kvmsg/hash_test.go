package kvmsg

import (
	"fmt"
	"testing"
)

func TestHashKey(t *testing.T) {
	t.Parallel()
	seen := map[uint64]string{}
	var ones uint64
	for i := range 100_000 {
		key := fmt.Sprint("/key/", i)
		h := HashKey([]byte(key))
		if h&TagFlags != 0 {
			t.Fatalf("hash %x of %q has flags", h, key)
		}
		if h != HashKey([]byte(key)) {
			t.Fatalf("%q has two hashes", key)
		}
		if other, dup := seen[h]; dup {
			t.Fatalf("%q and %q have one hash", key, other)
		}
		seen[h] = key
		ones |= h
	}
	if ones != ^uint64(TagFlags) {
		t.Errorf("bits %x of the hashes are never set", ^ones&^TagFlags)
	}
}
