package chp

import (
	"testing"

	"clustermap/internal/buf"
	"clustermap/internal/kvmsg"
	"clustermap/internal/store"
)

// pub is a KVPUB or KVSYNC for tests: an empty value deletes the key.
type pub struct {
	key   string
	seq   int64
	value string
}

// hugz is a HUGZ with a sequence.
func hugz(seq int64) pub { return pub{kvmsg.KeyHUGZ, seq, ""} }

// wireBatch returns updates in canonical form, as a client's intake passes them on.
func wireBatch(t testing.TB, messages ...pub) (wire []byte, spans []buf.Span) {
	t.Helper()
	for _, p := range messages {
		start := len(wire)
		wire = kvmsg.AppendRecord(wire, []byte(p.key), p.seq, nil, nil, []byte(p.value))
		_, tag, _, err := kvmsg.Inspect(wire[start:], kvmsg.FromServer, 0)
		must(t, err)
		spans = append(spans, buf.Span{Start: uint32(start), End: uint32(len(wire)), Tag: tag})
	}
	return wire, spans
}

// applyTo applies updates to a store.
func applyTo(t testing.TB, s *store.Map, messages ...pub) []store.Piece {
	t.Helper()
	wire, spans := wireBatch(t, messages...)
	return s.Apply(wire, spans, 0, nil)
}
