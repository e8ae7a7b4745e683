package fuzz

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"clustermap/zmtp"
)

// FuzzCommand asserts that the parsers of commands do not panic, and that the
// commands they accept are encoded to the same body again.
func FuzzCommand(f *testing.F) {
	f.Fuzz(func(t *testing.T, body []byte) {
		c, err := zmtp.ParseCommand(body)
		if err != nil {
			if !errors.Is(err, zmtp.ErrMalformed) {
				t.Fatal(err)
			}
			return
		}
		again := zmtp.AppendCommand(nil, string(c.Name), c.Data)
		if !bytes.Equal(zmtp.CommandBody(again), body) {
			t.Fatalf("%x, want the body %x", again, body)
		}
		if ttl, context, err := zmtp.ParsePing(c.Data); err == nil && len(context) <= zmtp.MaxPingContext {
			ping, _ := zmtp.ParseCommand(zmtp.CommandBody(zmtp.AppendPing(nil, ttl, context)))
			if !bytes.Equal(ping.Data, c.Data) {
				t.Fatalf("PING %x, want %x", ping.Data, c.Data)
			}
		}
		pong, _ := zmtp.ParseCommand(zmtp.CommandBody(zmtp.AppendPong(nil, c.Data)))
		if len(pong.Data) > zmtp.MaxPingContext || !bytes.HasPrefix(c.Data, pong.Data) {
			t.Fatalf("PONG %x to %x", pong.Data, c.Data)
		}
		if reason, err := zmtp.ParseError(c.Data); err == nil {
			e, _ := zmtp.ParseCommand(zmtp.CommandBody(zmtp.AppendError(nil, reason)))
			if !bytes.Equal(e.Data, c.Data) {
				t.Fatalf("ERROR %x, want %x", e.Data, c.Data)
			}
		}
	})
}

// FuzzMetadata asserts that ParseMetadata does not panic, that the metadata it
// accepts is encoded to the same bytes again, and that the number of properties
// is proportional to the number of bytes.
func FuzzMetadata(f *testing.F) {
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := zmtp.ParseMetadata(b)
		if err != nil {
			if !errors.Is(err, zmtp.ErrMalformed) || m != nil {
				t.Fatal(m, err)
			}
			return
		}
		if 6*len(m) > len(b) || cap(m) != len(m) {
			t.Fatalf("%d properties, capacity %d, in %d bytes", len(m), cap(m), len(b))
		}
		var again []byte
		for _, p := range m {
			again = zmtp.AppendProperty(again, p.Name, p.Value)
			if _, ok := m.Get(strings.ToLower(p.Name)); !ok {
				t.Fatalf("%q is not found", p.Name)
			}
		}
		if !bytes.Equal(again, b) {
			t.Fatalf("%x, want %x", again, b)
		}
	})
}
