package chp

import (
	"cmp"
	"encoding/binary"
)

// standing is the payload of a server's state messages to the other server of its pair.
// It describes the server's map.
type standing struct {
	newest reign  // of the last update; zero if there was none
	run    uint64 // of this server
	source uint64 // run of the active server that it follows or last followed
}

const standingSize = reignSize + 8 + 8

func appendStanding(dst []byte, s standing) []byte {
	dst = appendReigns(dst, []reign{s.newest})
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(dst, s.run), s.source)
}

// parseStanding parses a standing. A payload of another length is the zero standing,
// that of a server without a map.
func parseStanding(b []byte) (s standing) {
	if len(b) != standingSize {
		return s
	}
	s.newest = reign{binary.BigEndian.Uint64(b), int64(binary.BigEndian.Uint64(b[8:]))}
	s.run, s.source = binary.BigEndian.Uint64(b[reignSize:]), binary.BigEndian.Uint64(b[reignSize+8:])
	return s
}

// compareStandings compares the progress of two servers: see binarystar.Options.
func compareStandings(own, peer []byte) int {
	a, b := parseStanding(own).newest, parseStanding(peer).newest
	return cmp.Or(cmp.Compare(a.id, b.id), cmp.Compare(a.last, b.last))
}

// hasLost reports whether the active server has had no update and the other one has, or
// whether its last update is of an older epoch: it became active with old data, and has
// accepted nothing. See binarystar.Options.
func hasLost(active, other []byte) bool {
	a, o := parseStanding(active), parseStanding(other)
	return a.run != 0 && o.newest.last > 0 && (a.newest.last == 0 || epochOf(a.newest.id) < epochOf(o.newest.id))
}

// hasCopied reports whether the other server has its map from this run of the active
// one: see binarystar.Options.
func hasCopied(active, other []byte) bool {
	a, o := parseStanding(active), parseStanding(other)
	return a.run != 0 && o.source == a.run
}
