package chp

import (
	"clustermap/chp/internal/ledger"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"

	"clustermap/internal/buf"
	"clustermap/internal/kvmsg"
)

var errSection = errors.New("chp: invalid section of a map")

// restore adds a section to a state that is being received. Times to live count from at.
// The error is a [*stateVersionError] for a section of a later version, and otherwise
// wraps errSection; the state is then of no use.
func (s *mapState) restore(p section, at time.Duration) error {
	ok := false
	switch p.kind {
	case sectionMap:
		if ok = len(p.body) == ledger.MapIDSize; ok {
			s.id = [ledger.MapIDSize]byte(p.body)
		}
	case sectionTerms:
		var h []reign
		if h, ok = parseReigns(p.body); ok {
			s.restoreTerms(h)
		}
	case sectionClients:
		ok = s.clients.Add(p.body)
	case sectionRecords:
		var spans []buf.Span
		if spans, ok = kvmsg.SpansOf(p.body, nil); ok {
			s.restoreRecords(p.body, spans, at)
		}
	default:
		return &stateVersionError{uint32(p.kind)}
	}
	if !ok {
		return fmt.Errorf("%w of kind %d", errSection, p.kind)
	}
	return nil
}

// restoreTerms sets the terms, of which there is at least one, and the sequence.
func (s *mapState) restoreTerms(h []reign) {
	s.terms.set(h)
	s.sequence.Store(s.terms.newest.last)
}

// restoreRecords adds records of a section.
func (s *mapState) restoreRecords(wire []byte, spans []buf.Span, at time.Duration) {
	s.pieces = s.store.Apply(wire, spans, 0, s.pieces[:0])
	s.deadlines.Apply(wire, spans, 0, at)
}

// stateVersion is the version of what writeTo writes. It follows stateMagic.
const (
	stateVersion = 1
	stateMagic   = "CHPSTATE"

	// sectionSize is the size of a section of records in it.
	sectionSize = 256 << 10

	// sectionEnd follows the last section, so that a part of a state is not taken for all
	// of it.
	sectionEnd sectionKind = 1<<32 - 1
)

// stateVersionError refuses a state that a newer version has written.
type stateVersionError struct{ version uint32 }

func (e *stateVersionError) Error() string {
	return fmt.Sprintf("chp: the map is of version %d, which is newer than this program", e.version)
}

// writeTo writes the state: a magic number, the version, and the sections, each with its
// kind, the number of records and the size before it, until sectionEnd. Numbers are 4 bytes,
// big-endian.
func (c *mapImage) writeTo(w io.Writer) (n int64, err error) {
	write := func(b []byte) {
		if err == nil {
			var m int
			m, err = w.Write(b)
			n += int64(m)
		}
	}
	head := binary.BigEndian.AppendUint32([]byte(stateMagic), stateVersion)
	write(head)
	put := func(p section) {
		head = binary.BigEndian.AppendUint32(head[:0], uint32(p.kind))
		head = binary.BigEndian.AppendUint32(head, p.count)
		head = binary.BigEndian.AppendUint32(head, uint32(len(p.body)))
		write(head)
		write(p.body)
	}
	for p := range c.sections(sectionSize) {
		if put(p); err != nil {
			return n, err
		}
	}
	put(section{kind: sectionEnd})
	return n, err
}

// readState reads a state that writeTo has written. Times to live count from at.
func readState(r io.Reader, at time.Duration) (*mapState, error) {
	var head [len(stateMagic) + 4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	if string(head[:len(stateMagic)]) != stateMagic {
		return nil, errSection
	}
	if v := binary.BigEndian.Uint32(head[len(stateMagic):]); v > stateVersion {
		return nil, &stateVersionError{v}
	}
	s := newMapState(0)
	var body []byte
	for {
		var head [12]byte
		if _, err := io.ReadFull(r, head[:]); err != nil {
			return nil, noEOF(err)
		}
		p := section{kind: sectionKind(binary.BigEndian.Uint32(head[:])), count: binary.BigEndian.Uint32(head[4:])}
		if p.kind == sectionEnd {
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
		p.body = body
		if err := s.restore(p, at); err != nil {
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
