package route

import (
	"bytes"
	"testing"
)

// TestGeneratedIdentityIsUnused: a generated identity never hits one that is in use.
func TestGeneratedIdentityIsUnused(t *testing.T) {
	t.Parallel()
	var table Table
	table.Init()
	table.next = 1<<32 - 2
	taken := []byte{0, 0xFF, 0xFF, 0xFF, 0xFF}
	table.table[string(taken)] = Route{}
	var got [][]byte
	for range 2 {
		id := table.generate()
		table.table[string(id)] = Route{}
		got = append(got, id)
	}
	if !bytes.Equal(got[0], []byte{0, 0xFF, 0xFF, 0xFF, 0xFE}) || !bytes.Equal(got[1], []byte{0, 0, 0, 0, 0}) {
		t.Errorf("%x", got)
	}
}
