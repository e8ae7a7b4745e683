package partner

import (
	"encoding/binary"

	"clustermap/chp/internal/state"
)

// standing is the payload of a server's state messages to the other server of its pair.
// It describes the server's map.
type standing struct {
	accepted state.Reign // of the last update of a client; zero if there was none
	run      uint64      // of this server
	source   uint64      // run of the active server that it copies or has last copied; 0 if it is active itself
}

const standingSize = state.ReignSize + 8 + 8

func appendStanding(dst []byte, s standing) []byte {
	dst = state.AppendReigns(dst, []state.Reign{s.accepted})
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(dst, s.run), s.source)
}

// parseStanding parses a standing. ok is false for one that a server of a pair cannot have.
func parseStanding(b []byte) (s standing, ok bool) {
	if len(b) != standingSize {
		return s, false
	}
	h, ok := state.ParseReigns(b[:state.ReignSize])
	if !ok {
		return s, false
	}
	s.accepted = h[0]
	s.run, s.source = binary.BigEndian.Uint64(b[state.ReignSize:]), binary.BigEndian.Uint64(b[state.ReignSize+8:])
	return s, s.run != 0
}

// validStanding is binarystar.Options.Valid.
func validStanding(b []byte) bool {
	_, ok := parseStanding(b)
	return ok
}

// compareStandings compares the maps of two servers: see binarystar.Options.
func compareStandings(own, peer []byte) int {
	a, aok := parseStanding(own)
	b, bok := parseStanding(peer)
	if !aok || !bok {
		return 0
	}
	return state.Compare(a.accepted, b.accepted)
}

// hasCopied reports whether the other server copies its map from this run of the active
// one: see binarystar.Options.
func hasCopied(active, other []byte) bool {
	a, aok := parseStanding(active)
	o, ook := parseStanding(other)
	return aok && ook && o.source == a.run
}
