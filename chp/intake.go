package chp

import (
	"sync/atomic"

	"clustermap/internal/kvmsg"
	"clustermap/sockets"
)

// intake looks at what a server sends, in the goroutine that reads the
// connection, before the session sees it: it brings each message into
// canonical form, hashes its key, counts and drops what is malformed, and
// notes that the server is alive.
type intake struct {
	ear     uint32 // the bit of heard that this connection sets
	heard   *atomic.Uint32
	silent  *atomic.Bool // the server has sent nothing; see Client.silent
	wanted  *subtrees    // drop keys outside, nil if the server sends none
	refused *refusals
}

// hear notes that the server is alive.
func (in *intake) hear() {
	in.heard.Or(in.ear)
	if in.silent.Load() {
		in.silent.Store(false)
	}
}

// updates prepares a batch of the subscriber connection: KVPUB and HUGZ.
func (in *intake) updates(b *sockets.Batch) {
	in.hear()
	b.SetSpans(in.sift(b.Wire(), b.Spans(), kvmsg.KindHUGZ, hugzTag))
}

// snapshot prepares a batch of the snapshot connection: KVSYNC and KTHXBAI.
func (in *intake) snapshot(b *sockets.Batch) {
	in.hear()
	b.SetSpans(in.sift(b.Wire(), b.Spans(), kvmsg.KindKTHXBAI, kthxbaiTag))
}

// sift keeps the command of the given kind, with the given tag, and the
// key-value messages that are sound and wanted.
func (in *intake) sift(wire []byte, spans []sockets.Span, command kvmsg.Kind, tag uint64) []sockets.Span {
	kept := spans[:0]
	for _, span := range spans {
		m := wire[span.Start:span.End]
		// The size of messages is bounded by the socket. To drop a value that
		// our server took would leave an older one in its place.
		size, hash, k, err := kvmsg.Inspect(m, kvmsg.FromServer, 0)
		switch {
		case err != nil:
			in.refused.add(err)
			continue
		case k == command:
			hash = tag
		case k != kvmsg.KindUpdate:
			in.refused.add(kvmsg.ErrKeyReserved)
			continue
		case in.wanted != nil && !in.wanted.contains(kvmsg.Record(m).Key()):
			continue
		}
		span.End = span.Start + uint32(size)
		span.Tag = hash
		kept = append(kept, span)
	}
	return kept
}
