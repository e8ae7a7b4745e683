package wire

import (
	"encoding/binary"
	"errors"
	"strings"
	"time"

	"clustermap/internal/kvmsg"
	"clustermap/zmtp"
)

// Want describes the snapshot that a client requests, and the form of its messages.
// Clients with equal wants are sent the same bytes.
type Want struct {
	Subtree string
	Exact   bool // only the key named by Subtree; for clients of this module
	Full    bool // with UUID and properties; for clients of this module
	three   bool // messages of three frames: see Model
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
// Synchronization).
func isSubtree(s string) bool {
	return len(s) >= 2 && len(s) <= kvmsg.MaxKey && strings.HasPrefix(s, "/") && strings.HasSuffix(s, "/")
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

// newMapProperties are the properties of a KTHXBAI from a server whose map is empty
// because it is new, not because all keys were deleted. Only clients of this module get
// them.
const newMapProperties = "map=new\n"

// SaysNew reports whether a KTHXBAI announces a map that is new and empty.
func SaysNew(end kvmsg.Record) bool {
	value, _ := kvmsg.Property(end.Props(), "map")
	return string(value) == "new"
}

// AppendEnd appends the end of a snapshot, KTHXBAI. Its sequence is that of the cut, the
// highest that the snapshot can contain. fresh says that the map is new and empty.
func (w Want) AppendEnd(dst []byte, sequence int64, fresh bool) []byte {
	var bytes [8]byte
	binary.BigEndian.PutUint64(bytes[:], uint64(sequence))
	if w.three {
		return zmtp.AppendMessage(dst, []byte(kthxbai), bytes[:], []byte(w.Subtree))
	}
	var props []byte
	if fresh && w.Full {
		props = []byte(newMapProperties)
	}
	return zmtp.AppendMessage(dst, []byte(kthxbai), bytes[:], nil, props, []byte(w.Subtree))
}

// EndSize returns the most bytes that AppendEnd appends.
func (w Want) EndSize() int { return 64 + len(newMapProperties) + len(w.Subtree) }

// ScanUpdate finds, checks and hashes the update at the start of b, if it is valid and
// in canonical form: a client or a passive server gets it so (hooks.Scan).
func ScanUpdate(b []byte) (size int, tag uint64) { return kvmsg.Scan(b, kvmsg.FromServer, 0) }
