package chp

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"strconv"
	"time"

	"clustermap/chp/internal/wire"
	"clustermap/sockets"
)

// HotKeys are the keys of a server's map that are updated most. Updates and deletions count alike.
type HotKeys struct {
	// Began identifies the window in which updates were counted: two answers with the same Began
	// have counted on, so that their difference is what happened between them. Length is how long
	// the window was then.
	Began  int64
	Length time.Duration

	Updates, Bytes uint64 // of all keys in the window

	Keys []HotKey // the hottest first
}

// HotKey is one of them. The counts are estimates from a sample: of each batch of updates the
// server looks at 32 at most.
type HotKey struct {
	Key []byte

	// Updates is the number of updates of the key, at most. Unsure is how many of those may have been of
	// other keys, which were less hot and are no longer counted: a key is hot with at least
	// Updates-Unsure updates. Bytes is the size of those updates.
	Updates, Unsure, Bytes uint64
}

// Since returns what happened in the window after an earlier answer. If that is of another window, it
// is all of this one.
func (h HotKeys) Since(before HotKeys) HotKeys {
	if before.Began != h.Began || before.Length > h.Length {
		return h
	}
	then := map[string]HotKey{}
	for _, k := range before.Keys {
		then[string(k.Key)] = k
	}
	d := h
	d.Length -= before.Length
	d.Updates -= before.Updates
	d.Bytes -= before.Bytes
	d.Keys = nil
	for _, k := range h.Keys {
		if was, ok := then[string(k.Key)]; ok && was.Unsure == k.Unsure && was.Updates <= k.Updates && was.Bytes <= k.Bytes {
			k.Updates, k.Unsure, k.Bytes = k.Updates-was.Updates, 0, k.Bytes-was.Bytes
		}
		if k.Updates > k.Unsure {
			d.Keys = append(d.Keys, k)
		}
	}
	sortHot(d.Keys)
	return d
}

func sortHot(keys []HotKey) {
	slices.SortFunc(keys, func(a, b HotKey) int {
		return cmp.Or(cmp.Compare(b.Updates-b.Unsure, a.Updates-a.Unsure), bytes.Compare(a.Key, b.Key))
	})
}

// Hot returns the keys that are updated most, at most n of them, and at most 100. The server counts
// updates from the first call on until there is none for 15 seconds; so the first one has none. Counting
// costs some microseconds a batch of updates; otherwise it costs nothing.
func (s *Server) Hot(n int) HotKeys {
	now := s.sequencer.Hot(min(max(n, 0), mostHot))
	h := HotKeys{Began: int64(now.Began), Length: now.Length, Updates: now.Updates, Bytes: now.Bytes, Keys: make([]HotKey, len(now.Keys))}
	for i, k := range now.Keys {
		h.Keys[i] = HotKey{[]byte(k.Key), k.Updates, k.Unsure, k.Bytes}
	}
	return h
}

// hotAnswer is an answer to AskHot.
type hotAnswer struct {
	Refused string `json:"refused,omitempty"`
	HotKeys
}

// answerHot answers which keys are hot. It does not block.
func (s *Server) answerHot(peer *sockets.Peer, most string) {
	var answer hotAnswer
	n, err := strconv.ParseUint(most, 10, 31)
	if err == nil {
		err = s.admins.check(peer)
	}
	if err != nil {
		answer.Refused = err.Error()
		s.peerLog.Refused("does not say which keys are hot", peer, err)
	} else {
		answer.HotKeys = s.Hot(int(n))
	}
	s.replyJSON(peer, wire.AnswerHot, answer)
}

// ServerHot asks the server at tcp://host:P which keys are updated most, as [Server.Hot] does.
// security is the same as [ClientOptions.Security]. If the server refuses, the error is an
// [*AdminError]. A server of an earlier version does not answer.
func ServerHot(ctx context.Context, server string, n int, security sockets.Security) (h HotKeys, err error) {
	err = converse(ctx, server, security, func(q *questions) error {
		var a hotAnswer
		err := q.json(server, &a, &a.Refused, wire.AnswerHot, wire.AskHot, strconv.Itoa(max(n, 0)))
		h = a.HotKeys
		return err
	})
	return h, err
}
