package follow

import (
	"sync/atomic"

	"clustermap/chp/internal/subtree"
	"clustermap/internal/buf"
	"clustermap/internal/hooks"
	"clustermap/internal/kvmsg"
)

// intake prepares the messages of a server, in the goroutine that reads the connection
// and before the session sees it. It brings each message into canonical form, hashes its
// key, counts and drops malformed messages, and records that the server is alive.
type intake struct {
	ear     uint32     // the bit of heard that stands for this connection
	command kvmsg.Kind // that it has beside key-value messages
	tag     uint64     // of the command
	heard   *atomic.Uint32
	silent  *atomic.Bool // the server has sent nothing; see Follower.silent
	wanted  *subtree.Set // keys outside are dropped; nil if the server sends none
	refused func(error)  // counts a malformed message
}

// prepare prepares a batch: KVPUB and HUGZ, or KVSYNC and KTHXBAI.
func (in *intake) prepare(b *hooks.Batch) {
	in.heard.Or(in.ear)
	if in.silent.Load() {
		in.silent.Store(false)
	}
	b.SetSpans(in.sift(b.Wire(), b.Spans()))
}

// sift keeps the commands of its kind, which get its tag, and the valid key-value messages with
// wanted keys.
func (in *intake) sift(wire []byte, spans []buf.Span) []buf.Span {
	n := 0
	if in.wanted == nil { // keep what ScanUpdate has found, which is nearly always all
		for n < len(spans) && spans[n].Tag != 0 {
			n++
		}
	}
	kept := spans[:n]
	for _, span := range spans[n:] {
		m := wire[span.Start:span.End]
		if span.Tag == 0 { // not found by ScanUpdate
			// The socket bounds the size of messages. Dropping a value that the
			// server accepted would leave an older value in its place.
			size, hash, k, err := kvmsg.Inspect(m, kvmsg.FromServer, 0)
			switch {
			case err != nil:
				in.refused(err)
				continue
			case k == in.command:
				hash = in.tag
			case k != kvmsg.KindUpdate:
				in.refused(kvmsg.ErrKeyReserved)
				continue
			}
			span.End = span.Start + uint32(size)
			span.Tag = hash
		}
		if in.wanted != nil && span.Tag != in.tag && !in.wanted.Contains(kvmsg.Record(m).Key()) {
			continue
		}
		kept = append(kept, span)
	}
	return kept
}
