package chp

import (
	"encoding/binary"

	"clustermap/internal/kvmsg"
	"clustermap/zmtp"
)

// What the servers of a pair say to each other, on the snapshot port of the active
// one. The passive one connects there with a DEALER socket and announces
// propertyPeer. All messages have two frames, a name and a body; the updates between
// them are KVPUBs, which have five, as they are in the log.
//
//	passive  FOLLOW   followRequest: what it has
//	active   TAIL     8 bytes, its run: what follows continues what the passive has
//	         BASE     baseHead: the map follows, in the place of what the passive has
//	         …        KVPUBs, with the time to live that is left
//	         ORIGINS  the clients whose updates are in it: see origins
//	         DONE     nothing: the map is complete
//	         BATCH    batchHead: so many KVPUBs follow
//	         …
//	passive  HAVE     8 bytes, the sequence up to which it has everything
//	         BYE      nothing: it ends, and need not be waited for
//
// All integers are big-endian.
const (
	nameFollow  = "FOLLOW"
	nameTail    = "TAIL"
	nameBase    = "BASE"
	nameOrigins = "ORIGINS"
	nameDone    = "DONE"
	nameBatch   = "BATCH"
	nameHave    = "HAVE"
	nameBye     = "BYE"
)

// propertyPeer announces the other server of a pair. Its value is the version of the
// messages.
const (
	propertyPeer = "X-CHP-Peer"
	peerVersion  = "1"
)

// followRequest is what a passive server has: everything up to a sequence of a reign
// of a map.
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

// baseHead says what a map is that is sent as a whole. The follower finds out with the
// reigns which of its own updates are not in that map.
type baseHead struct {
	run    uint64 // of the active server
	mapID  [mapIDSize]byte
	reigns []reign // the oldest first; the last update of the last one is that of the cut
}

func (h *baseHead) append(dst []byte) []byte {
	dst = binary.BigEndian.AppendUint64(dst, h.run)
	return appendReigns(append(dst, h.mapID[:]...), h.reigns)
}

func parseBaseHead(b []byte) (h baseHead, ok bool) {
	if len(b) < 8+mapIDSize {
		return h, false
	}
	h.run = binary.BigEndian.Uint64(b)
	h.mapID = [mapIDSize]byte(b[8:])
	h.reigns, ok = parseReigns(b[8+mapIDSize:])
	return h, ok
}

// newest returns the last update of the map.
func (h *baseHead) newest() reign { return h.reigns[len(h.reigns)-1] }

// appendControl appends a message of two frames.
func appendControl(dst []byte, name string, body []byte) []byte {
	return zmtp.AppendMessage(dst, []byte(name), body)
}

// parseControl takes a message of two frames apart, in wire form. What is not one is
// for others to judge.
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
