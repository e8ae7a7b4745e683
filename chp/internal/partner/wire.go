package partner

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"

	"clustermap/chp/commit"
	"clustermap/chp/internal/ledger"
	"clustermap/chp/internal/state"
	"clustermap/internal/kvmsg"
	"clustermap/sockets"
	"clustermap/zmtp"
)

// The messages between the servers of a pair, on the snapshot port of the active one.
// The passive one connects with a DEALER socket and announces propertyPeer. Messages
// have two frames, a name and a body. The updates between them are KVPUBs of five
// frames, as they are in the log.
//
//	passive  FOLLOW   followRequest: its last update
//	active   CHALLENGE a nonce; not with CURVE, nor to an earlier version
//	passive  PROOF    the answer: see proofs
//	active   TAIL     8 bytes, its run: the following batches continue that
//	         TIMES    after TAIL, if the passive one asks for it: see times.go
//	         BASE     baseHead: the map follows, and replaces the passive one's
//	         …        KVPUBs, with the remaining times to live
//	         ORIGINS  the clients whose updates are in it: see origins
//	         HISTORY  versions of its keys: see history.Keeper
//	         MADE     their requests that are in it: see ledger.Clients
//	         DONE     empty: the map is complete
//	         BATCH    Head: its KVPUBs follow
//	         …
//	passive  HAVE     8 bytes, the sequence up to which it has everything
//	         BYE      empty: it ends, and the active one should not wait for it
//
// All integers are big-endian.
const (
	nameFollow  = "FOLLOW"
	nameTail    = "TAIL"
	nameTimes   = "TIMES"
	nameBase    = "BASE"
	nameOrigins = "ORIGINS"
	nameHistory = "HISTORY"
	nameMade    = "MADE"
	nameDone    = "DONE"
	nameBatch   = "BATCH"
	nameHave    = "HAVE"
	nameBye     = "BYE"

	nameChallenge = "CHALLENGE"
	nameProof     = "PROOF"
)

// propertyPeer announces a server of a pair to the other one: the passive one that connects,
// and the active one, which accepts. Its value is the version of these messages that it
// speaks. A server refuses one that speaks a newer version, because it might misunderstand
// it; it ignores messages of other names. Active servers of old do not announce it and speak
// version 1.
const (
	propertyPeer = "X-CHP-Peer"
	peerVersion  = "1"
	peerNewest   = 1 // the same

	// propertyRequester tells the new active server, for its log, at whose request the
	// passive one has handed over: its address and, with CURVE, its key.
	propertyRequester = "X-CHP-Requester"
)

// Announce adds to the properties of a connection that it is of a server of a pair.
func Announce(properties map[string]string) { properties[propertyPeer] = peerVersion }

// Announces reports whether a peer is a server of a pair.
func Announces(p *sockets.Peer) bool {
	_, ok := p.Property(propertyPeer)
	return ok
}

var errFollower = errors.New("chp: unexpected message of the passive server")

// checkPeerVersion returns a [*commit.FormatError] if the other server of the pair speaks a
// newer version.
func checkPeerVersion(p *sockets.Peer) error {
	text, ok := p.Property(propertyPeer)
	if !ok {
		return nil
	}
	version, err := strconv.ParseUint(text, 10, 32)
	switch {
	case err != nil || version == 0:
		return fmt.Errorf("%w: version %q of the pair's protocol", errFollower, text)
	case version > peerNewest:
		return &commit.FormatError{What: "what the other server of the pair sends", Unit: "protocol", Version: uint32(version), Newest: peerNewest}
	}
	return nil
}

// followRequest states the map of a passive server: the sequence of its last update, the
// reign of that update, and the identity of the map.
type followRequest struct {
	mapID [16]byte
	reign uint64
	last  int64
}

const followRequestSize = 16 + 8 + 8

func (r *followRequest) append(dst []byte) []byte {
	dst = append(dst, r.mapID[:]...)
	dst = binary.BigEndian.AppendUint64(dst, r.reign)
	return binary.BigEndian.AppendUint64(dst, uint64(r.last))
}

func parseFollowRequest(b []byte) (r followRequest, ok bool) {
	if len(b) != followRequestSize {
		return r, false
	}
	copy(r.mapID[:], b)
	r.reign = binary.BigEndian.Uint64(b[16:])
	r.last = int64(binary.BigEndian.Uint64(b[24:]))
	return r, true
}

// baseHead describes a map that is sent as a whole. From the reigns the follower
// determines which of its own updates are not in it.
type baseHead struct {
	run    uint64 // of the active server
	mapID  [ledger.MapIDSize]byte
	reigns []state.Reign // oldest first; the last one ends with the last update of the cut
}

func (h *baseHead) append(dst []byte) []byte {
	dst = binary.BigEndian.AppendUint64(dst, h.run)
	return state.AppendReigns(append(dst, h.mapID[:]...), h.reigns)
}

func parseBaseHead(b []byte) (h baseHead, ok bool) {
	if len(b) < 8+ledger.MapIDSize {
		return h, false
	}
	h.run = binary.BigEndian.Uint64(b)
	h.mapID = [ledger.MapIDSize]byte(b[8:])
	h.reigns, ok = state.ParseReigns(b[8+ledger.MapIDSize:])
	return h, ok
}

// appendControl appends a message of two frames.
func appendControl(dst []byte, name string, body []byte) []byte {
	return zmtp.AppendMessage(dst, []byte(name), body)
}

// parseControl returns the frames of a message of two frames in wire form. For any
// other message ok is false.
func parseControl(m []byte) (name string, body []byte, ok bool) {
	start, end, ok := kvmsg.FrameAt(m, 0)
	if !ok || m[0]&kvmsg.FlagMore == 0 {
		return "", nil, false
	}
	from, to, ok := kvmsg.FrameAt(m, end)
	if !ok || m[end]&kvmsg.FlagMore != 0 || to != len(m) {
		return "", nil, false
	}
	return string(m[start:end]), m[from:to], true
}
