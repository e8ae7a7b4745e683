package wire

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"strconv"
	"strings"
	"time"

	"clustermap/chp/internal/subtree"
	"clustermap/internal/kvmsg"
	"clustermap/zmtp"
)

// Want describes the snapshot that a client requests, and the form of its messages.
// Clients with equal wants are sent the same bytes.
type Want struct {
	Subtree string
	Exact   bool // only the key named by Subtree; for clients of this module
	Full    bool // with UUID and properties; for clients of this module

	// Since asks for the updates after a sequence of a map with an identity, or of any map if
	// that is zero, instead of a snapshot: of Subtree and of the specifications in More, each
	// with a NUL byte behind it. For clients of this module.
	Since bool
	After int64
	ID    [mapIDSize]byte
	More  string

	three bool // messages of three frames: see Model
}

// Errors for invalid snapshot requests.
var (
	errRequest      = errors.New("chp: not a snapshot request: want two frames, ICANHAZ? and a subtree")
	errWholeRequest = errors.New("chp: not a snapshot request: want one frame, ICANHAZ?")
)

const (
	icanhaz = "ICANHAZ?"
	kthxbai = "KTHXBAI"
)

// Request returns the frames of a snapshot request.
func (d Dialect) Request(subtree string) [][]byte {
	frames := [][]byte{[]byte(icanhaz)}
	if d.Subtrees {
		frames = append(frames, []byte(subtree))
	}
	return frames
}

// ParseRequest parses a snapshot request. ours reports that the client is of this module:
// it may name a key instead of a subtree.
func (d Dialect) ParseRequest(m zmtp.WireMessage, ours bool) (Want, error) {
	if begins(m, since) && ours && d.Full {
		return parseSince(m)
	}
	command, rest := m.Next()
	if !d.Subtrees {
		if string(command) != icanhaz || len(rest) > 0 {
			return Want{}, errWholeRequest
		}
		return Want{three: d.Three}, nil
	}
	if string(command) != icanhaz || len(rest) == 0 {
		return Want{}, errRequest
	}
	subtree, rest := rest.Next()
	if len(rest) > 0 {
		return Want{}, errRequest
	}
	w := Want{Subtree: string(subtree), Full: ours && d.Full, three: d.Three}
	switch {
	case w.Subtree == "" || isSubtree(w.Subtree):
		return w, nil
	case w.Full && len(w.Subtree) <= kvmsg.MaxKey:
		w.Exact = true
		return w, nil
	}
	return Want{}, errRequest
}

// isSubtree reports whether s is a slash, path segments, and a slash (RFC 12, State
// Synchronization), or the one of the leases.
func isSubtree(s string) bool {
	return s == kvmsg.LeasePrefix || len(s) >= 2 && len(s) <= kvmsg.MaxKey && strings.HasPrefix(s, "/") && strings.HasSuffix(s, "/")
}

// AppendRecord appends a record as KVSYNC: for clients of this module with the remaining
// time to live, or 0 if it has none; for others with empty UUID and properties (RFC 12,
// State Synchronization) or in three frames.
func (w Want) AppendRecord(dst []byte, r kvmsg.Record, left time.Duration) []byte {
	switch {
	case w.Full:
		return kvmsg.AppendAged(dst, r, left)
	case w.three:
		return appendThree(dst, r)
	}
	return kvmsg.AppendBare(dst, r)
}

// mapIDSize is the size of the identity of a map.
const mapIDSize = 16

// claimSize is the size of a claim: the identity of a map, and a sequence.
const claimSize = mapIDSize + kvmsg.SequenceSize

// since is the first frame of the question what came after a sequence: see SinceRequest.
const since = "SINCE?"

// SinceRequest returns the frames of a question that a server answers which announces that: what
// came after a sequence of a map with an identity. After SINCE? comes the claim, the identity and
// the sequence, and then each specification in a frame. The answer has the updates in order, as
// they were published, deletions among them, and ends with a KTHXBAI, whose sequence is that of
// the last update of the map at that time. If the map has never been at that sequence, or the
// server no longer knows what came after it, there is only a KTHXBAI: see End.
//
// ok is false if the specifications are too many for one question.
func SinceRequest(id [mapIDSize]byte, after int64, specs []string) (frames [][]byte, ok bool) {
	frames = [][]byte{[]byte(since), binary.BigEndian.AppendUint64(id[:], uint64(after))}
	size := 0
	for _, s := range specs {
		frames = append(frames, []byte(s))
		size += len(s)
	}
	return frames, len(specs) <= maxSinceSpecs && size <= maxSinceBytes
}

func parseSince(m zmtp.WireMessage) (Want, error) {
	_, m = m.Next()
	claim, m := m.Next()
	if len(claim) != claimSize || len(m) == 0 || m.Len() > maxSinceSpecs || len(m) > maxSinceBytes+3*maxSinceSpecs {
		return Want{}, errRequest
	}
	w := Want{Full: true, Since: true, ID: [mapIDSize]byte(claim), After: int64(binary.BigEndian.Uint64(claim[mapIDSize:]))}
	for i := 0; len(m) > 0; i++ {
		var spec []byte
		spec, m = m.Next()
		if subtree.Check(string(spec)) != nil {
			return Want{}, errRequest
		}
		if i == 0 {
			w.Subtree = string(spec)
		} else {
			w.More += string(spec) + "\x00"
		}
	}
	return w, nil
}

// Specs returns the specifications of a question what came after a sequence.
func (w Want) Specs() []string {
	specs := []string{w.Subtree}
	for more := w.More; more != ""; {
		var spec string
		spec, more, _ = strings.Cut(more, "\x00")
		specs = append(specs, spec)
	}
	return specs
}

// End is what the KTHXBAI of a server of this module says, to clients of this module.
type End struct {
	Sequence int64           // of the cut: the highest that the snapshot can contain
	Last     int64           // of the last update in it; less if the server has skipped sequences since
	New      bool            // the map is new and empty
	ID       [mapIDSize]byte // of the map; zero from an earlier version

	// Compacted says that the question what came after a sequence has no answer: Oldest is the
	// lowest sequence of the map that it would have one for.
	Compacted bool
	Oldest    int64
}

// Properties of such a KTHXBAI.
const (
	propertyMap    = "map-id"
	propertyOldest = "oldest"
	propertyLast   = "last"
)

// ParseEnd parses a KTHXBAI.
func ParseEnd(r kvmsg.Record) (e End) {
	e.Sequence, e.Last, e.New = r.Seq(), r.Seq(), SaysNew(r)
	if id, _ := kvmsg.Property(r.Props(), propertyMap); len(id) == 2*len(e.ID) {
		if _, err := hex.Decode(e.ID[:], id); err != nil {
			e.ID = [mapIDSize]byte{}
		}
	}
	number := func(name string) (n int64, ok bool) {
		text, ok := kvmsg.Property(r.Props(), name)
		if ok {
			var err error
			n, err = strconv.ParseInt(string(text), 10, 64)
			ok = err == nil
		}
		return n, ok
	}
	if last, ok := number(propertyLast); ok {
		e.Last = last
	}
	e.Oldest, e.Compacted = number(propertyOldest)
	return e
}

// properties returns the properties of the KTHXBAI.
func (e *End) properties() (dst []byte) {
	if e.New {
		dst = append(dst, newMapProperties...)
	}
	if e.ID != [mapIDSize]byte{} {
		dst = append(dst, propertyMap+"="...)
		dst = append(hex.AppendEncode(dst, e.ID[:]), '\n')
	}
	if e.Last != e.Sequence && e.Last > 0 {
		dst = append(dst, propertyLast+"="...)
		dst = append(strconv.AppendInt(dst, e.Last, 10), '\n')
	}
	if e.Compacted {
		dst = append(dst, propertyOldest+"="...)
		dst = append(strconv.AppendInt(dst, e.Oldest, 10), '\n')
	}
	return dst
}

// newMapProperties are the properties of a KTHXBAI from a server whose map is empty
// because it is new, not because all keys were deleted. Only clients of this module get
// them.
const newMapProperties = "map=new\n"

// SaysNew reports whether a KTHXBAI announces a map that is new and empty.
func SaysNew(end kvmsg.Record) bool {
	value, _ := kvmsg.Property(end.Props(), "map")
	return string(value) == "new"
}

// AppendEnd appends the end of a snapshot, KTHXBAI.
func (w Want) AppendEnd(dst []byte, e *End) []byte {
	var bytes [8]byte
	binary.BigEndian.PutUint64(bytes[:], uint64(e.Sequence))
	if w.three {
		return zmtp.AppendMessage(dst, []byte(kthxbai), bytes[:], []byte(w.Subtree))
	}
	var props []byte
	if w.Full {
		props = e.properties()
	}
	return zmtp.AppendMessage(dst, []byte(kthxbai), bytes[:], nil, props, []byte(w.Subtree))
}

// EndSize returns the most bytes that AppendEnd appends.
func (w Want) EndSize() int { return 192 + len(w.Subtree) }

// ScanUpdate finds, checks and hashes the update at the start of b, if it is valid and
// in canonical form: a client or a passive server gets it so (hooks.Scan).
func ScanUpdate(b []byte) (size int, tag uint64) { return kvmsg.Scan(b, kvmsg.FromServer, 0) }
