package fanout

import (
	"encoding/binary"

	"clustermap/zmtp"
)

// alike recognizes messages of a batch that go to the same groups as the one before them,
// because their topics begin with the same bytes, and these decide. Often that is so for
// all of a batch; then each message costs a comparison instead of a search. It is
// guarded by the mutex of the subscriptions.
type alike struct {
	topic  []byte   // the bytes that decide, a part of the batch; nil if no search is remembered
	first  uint64   // up to 8 of them, as a little-endian number
	mask   uint64   // its bits
	groups []*group // those that the search has found and that have not subscribed to everything
	from   int      // offset in the batch where the messages begin
	count  int      // number of these messages

	pause  int // number of further searches that are not remembered
	length int // of the last pause
}

// begin remembers a search, whose groups have been recorded, for the messages from an offset
// on whose topics begin with the given bytes. If it cannot be remembered, ok is false.
func (k *alike) begin(topic []byte, ok bool, from int) {
	if !ok {
		k.groups = k.groups[:0]
		return
	}
	var first [quickTopic]byte
	n := copy(first[:], topic)
	k.topic, k.first, k.mask = topic, binary.LittleEndian.Uint64(first[:]), 1<<(8*n)-1
	k.from = from
}

// has reports whether a message is one of them. A search must be remembered.
func (k *alike) has(m []byte) bool {
	const header = 2 // of a frame that is not long
	if len(m) < header+quickTopic || m[0]&zmtp.FlagLong != 0 || int(m[1]) < len(k.topic) ||
		(binary.LittleEndian.Uint64(m[header:])^k.first)&k.mask != 0 {
		return false
	}
	return len(k.topic) <= quickTopic || string(m[header+quickTopic:header+len(k.topic)]) == string(k.topic[quickTopic:])
}

// end adds the messages, the last of which ends at an offset, to the runs of their groups,
// and forgets the search.
func (k *alike) end(s *subscriptions, at int) {
	if k.count > 0 {
		for _, g := range k.groups {
			s.touch(g, k.from, at, k.count)
		}
		k.length = 0
	} else { // remembering it did not pay
		k.length = min(2*k.length+1, maxPause)
		k.pause = k.length
	}
	k.topic, k.groups, k.count = nil, k.groups[:0], 0
}
