package state

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"

	"clustermap/chp/internal/ledger"
	"clustermap/internal/buf"
	"clustermap/internal/kvmsg"
)

var errSection = errors.New("chp: invalid section of a map")

// Restore adds a section to a state that is being received. Times to live count from at.
// The error is a [*versionError] for a section of a later version, and otherwise
// wraps errSection; the state is then of no use.
func (s *State) Restore(p Section, at time.Duration) error {
	ok := false
	switch p.Kind {
	case KindMap:
		if ok = len(p.Body) == ledger.MapIDSize; ok {
			s.ID = [ledger.MapIDSize]byte(p.Body)
		}
	case KindTerms:
		var h []Reign
		if h, ok = ParseReigns(p.Body); ok {
			s.RestoreTerms(h)
		}
	case KindClients:
		ok = s.Clients.Add(p.Body)
	case KindHistory:
		ok = s.History.Restore(p.Body)
	case KindRequests:
		ok = s.Clients.AddMade(p.Body)
	case KindRecords:
		var spans []buf.Span
		if spans, ok = kvmsg.SpansOf(p.Body, nil); ok {
			s.RestoreRecords(p.Body, spans, at)
		}
	default:
		return &versionError{uint32(p.Kind)}
	}
	if !ok {
		return fmt.Errorf("%w of kind %d", errSection, p.Kind)
	}
	return nil
}

// RestoreTerms sets the terms, of which there is at least one, and the sequence.
func (s *State) RestoreTerms(h []Reign) {
	s.Terms.Set(h)
	s.sequence.Store(s.Terms.Newest.Last)
}

// RestoreRecords adds records of a section.
func (s *State) RestoreRecords(wire []byte, spans []buf.Span, at time.Duration) {
	s.pieces = s.Store.Apply(wire, spans, 0, s.pieces[:0])
	s.Deadlines.Apply(wire, spans, 0, at)
	s.Leases.apply(wire, spans, 0)
}

// version is the version of what WriteTo writes. It follows magic.
const (
	version = 1
	magic   = "CHPSTATE"

	// kindEnd follows the last section, so that a part of a state is not taken for all
	// of it.
	kindEnd Kind = 1<<32 - 1
)

// versionError refuses a state that a newer version has written.
type versionError struct{ version uint32 }

func (e *versionError) Error() string {
	return fmt.Sprintf("chp: the map is of version %d, which is newer than this program", e.version)
}

// WriteTo writes the state: a magic number, the version, and the sections, each with its
// kind, the number of records and the size before it, until kindEnd. Numbers are 4 bytes,
// big-endian.
func (c *Image) WriteTo(w io.Writer) (n int64, err error) {
	write := func(b []byte) {
		if err == nil {
			var m int
			m, err = w.Write(b)
			n += int64(m)
		}
	}
	head := binary.BigEndian.AppendUint32([]byte(magic), version)
	write(head)
	put := func(p Section) {
		head = binary.BigEndian.AppendUint32(head[:0], uint32(p.Kind))
		head = binary.BigEndian.AppendUint32(head, p.Count)
		head = binary.BigEndian.AppendUint32(head, uint32(len(p.Body)))
		write(head)
		write(p.Body)
	}
	for p := range c.Sections(sectionSize) {
		if put(p); err != nil {
			return n, err
		}
	}
	put(Section{Kind: kindEnd})
	return n, err
}

// Read reads a state that writeTo has written. Times to live count from at.
func Read(r io.Reader, at time.Duration) (*State, error) {
	var head [len(magic) + 4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	if string(head[:len(magic)]) != magic {
		return nil, errSection
	}
	if v := binary.BigEndian.Uint32(head[len(magic):]); v > version {
		return nil, &versionError{v}
	}
	s := New(0)
	var body []byte
	for {
		var head [12]byte
		if _, err := io.ReadFull(r, head[:]); err != nil {
			return nil, noEOF(err)
		}
		p := Section{Kind: Kind(binary.BigEndian.Uint32(head[:])), Count: binary.BigEndian.Uint32(head[4:])}
		if p.Kind == kindEnd {
			return s, nil
		}
		var err error
		// In portions: the size may be damaged.
		body = body[:0]
		for left := int64(binary.BigEndian.Uint32(head[8:])); left > 0 && err == nil; {
			n := min(left, sectionSize)
			at := len(body)
			body = append(body, make([]byte, n)...)
			_, err = io.ReadFull(r, body[at:])
			left -= n
		}
		if err != nil {
			return nil, noEOF(err)
		}
		p.Body = body
		if err := s.Restore(p, at); err != nil {
			return nil, err
		}
	}
}

// noEOF returns io.ErrUnexpectedEOF for io.EOF.
func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
