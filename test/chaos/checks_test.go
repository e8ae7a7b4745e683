//go:build unix

package chaos

import (
	"encoding/binary"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"clustermap/chp"
)

const ms = time.Millisecond

// scene makes a history in which nothing is wrong: "/a/k" is set to 1 and 2,
// deleted, and set to 4, which expires; then "/b/k" is set to 5. Two clients have
// seen it, "all" everything and "a" the subtree "/a/".
func scene() (h *history, all, a *life) {
	h = &history{begin: time.Now().Add(-time.Minute)}
	h.ops = []*op{
		{ID: 1, Kind: opSet, Key: "/a/k", Call: 10 * ms, Return: 20 * ms, Outcome: acked, Seq: 101, Client: "all"},
		{ID: 2, Kind: opSet, Key: "/a/k", Call: 30 * ms, Return: 40 * ms, Outcome: acked, Seq: 102, Client: "all"},
		{ID: 3, Kind: opDelete, Key: "/a/k", Call: 50 * ms, Return: 60 * ms, Outcome: acked, Seq: 103, Client: "all"},
		{ID: 4, Kind: opSet, Key: "/a/k", Call: 70 * ms, Return: 80 * ms, Outcome: acked, Seq: 104, TTL: 50 * ms, Client: "all"},
		{ID: 5, Kind: opSet, Key: "/b/k", Call: 90 * ms, Return: 200 * ms, Outcome: acked, Seq: 106, Client: "all"},
		{ID: 6, Kind: opRead, Key: "/a/k", Call: 210 * ms, Return: 220 * ms, Outcome: acked},
		{ID: 7, Kind: opRead, Key: "/b/k", Call: 210 * ms, Return: 220 * ms, Outcome: acked, Saw: 5},
	}
	events := []event{
		{seq: 101, key: "/a/k", value: 1, uuid: [16]byte{1}, cause: chp.CauseSet, live: true, at: 15 * ms},
		{seq: 102, key: "/a/k", value: 2, uuid: [16]byte{2}, cause: chp.CauseSet, live: true, at: 35 * ms},
		{seq: 103, key: "/a/k", uuid: [16]byte{3}, cause: chp.CauseDeleted, live: true, at: 55 * ms},
		{seq: 104, key: "/a/k", value: 4, uuid: [16]byte{4}, cause: chp.CauseSet, live: true, at: 75 * ms},
		{seq: 105, key: "/a/k", cause: chp.CauseExpired, live: true, at: 130 * ms},
		{seq: 106, key: "/b/k", value: 5, uuid: [16]byte{5}, cause: chp.CauseSet, live: true, at: 195 * ms},
	}
	all = &life{name: "all", installs: []install{{ms, 0}}, events: append([]event(nil), events...)}
	a = &life{name: "a", installs: []install{{ms, 0}}, subtrees: []string{"/a/"}, events: append([]event(nil), events[:5]...)}
	return h, all, a
}

// TestChecks: each check finds its violation, and nothing in a sound history.
func TestChecks(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		spoil  func(h *history, all, a *life)
		checks string // those that fail
	}{
		{"nothing", func(*history, *life, *life) {}, ""},
		{"a lost update", func(h *history, _, _ *life) { h.ops[6].Saw = 0 }, "linearizable"},
		{"a deleted key lives", func(h *history, _, _ *life) { h.ops[5].Saw = 2 }, "linearizable"},
		{"a read of the past", func(h *history, _, _ *life) {
			h.ops = append(h.ops, &op{ID: 8, Kind: opRead, Key: "/a/k", Call: 41 * ms, Return: 42 * ms, Outcome: acked, Saw: 1})
		}, "linearizable"},
		{"a key expires too early for a reader", func(h *history, _, _ *life) {
			h.ops = append(h.ops, &op{ID: 8, Kind: opRead, Key: "/a/k", Call: 81 * ms, Return: 82 * ms, Outcome: acked})
		}, "linearizable"},
		{"sequences against time", func(h *history, all, a *life) {
			h.ops[0].Seq, h.ops[1].Seq = 102, 101
			for _, l := range []*life{all, a} {
				l.events[0].value, l.events[1].value = 2, 1
			}
		}, "linearizable, program order"},
		{"an unknown update that nobody saw", func(h *history, _, _ *life) {
			h.ops = append(h.ops, &op{ID: 8, Kind: opSet, Key: "/a/k", Call: 81 * ms, Return: 82 * ms, Outcome: unknown})
		}, ""},
		{"an unknown update that nobody saw before it expired", func(h *history, _, _ *life) {
			h.ops[6].Saw = 0
			h.ops = append(h.ops, &op{ID: 8, Kind: opSet, Key: "/b/k", TTL: 20 * ms, Call: 95 * ms, Return: 97 * ms, Outcome: unknown})
		}, ""},
		{"an unknown update that nobody saw and that has not expired yet", func(h *history, _, _ *life) {
			h.ops = append(h.ops, &op{ID: 8, Kind: opSet, Key: "/b/k", TTL: time.Hour, Call: 95 * ms, Return: 97 * ms, Outcome: unknown})
		}, ""},
		{"an unknown deletion that was done", func(h *history, _, _ *life) {
			h.ops[6].Saw = 0
			h.ops = append(h.ops, &op{ID: 8, Kind: opDelete, Key: "/b/k", Call: 81 * ms, Return: 82 * ms, Outcome: unknown})
		}, ""},
		{"a server that lost its map", func(h *history, _, _ *life) {
			h.ops[6].Saw = 0
			h.ops = append(h.ops, &op{ID: 8, Kind: opReset, Call: 201 * ms, Return: 202 * ms, Outcome: acked})
		}, ""},
		{"a server that lost its map too early", func(h *history, _, _ *life) {
			h.ops[6].Saw = 0
			h.ops = append(h.ops, &op{ID: 8, Kind: opReset, Call: 2 * ms, Return: 3 * ms, Outcome: acked})
		}, "linearizable"},
		{"twice", func(_ *history, all, _ *life) {
			all.events = append(all.events, event{seq: 107, key: "/b/k", value: 5, uuid: [16]byte{5}, cause: chp.CauseSet, live: true, at: 205 * ms})
		}, "acknowledged, twice"},
		{"a deletion twice", func(_ *history, all, _ *life) {
			all.events = append(all.events, event{seq: 107, key: "/a/k", uuid: [16]byte{3}, cause: chp.CauseDeleted, live: true, at: 205 * ms})
		}, "twice"},
		{"two that saw different things", func(_ *history, _, a *life) { a.events[2].value = 9 }, "agreement"},
		{"falling sequences", func(_ *history, _, a *life) { a.events[1], a.events[0] = a.events[0], a.events[1] }, "complete, order"},
		{"a missing update", func(_ *history, _, a *life) { a.events = append(a.events[:1], a.events[2:]...) }, "complete"},
		{"a missing update that nobody else saw", func(_ *history, all, a *life) {
			a.events = append(a.events[:1], a.events[2:]...)
			all.events = append(all.events[:1], all.events[2:]...)
		}, "complete"},
		{"updates that a new snapshot replaced", func(_ *history, _, a *life) {
			a.events[1].live = false
			a.installs = append(a.installs, install{at: 45 * ms})
		}, ""},
		{"a snapshot of the past", func(_ *history, _, a *life) {
			a.events = []event{{seq: 101, key: "/a/k", value: 1, uuid: [16]byte{1}, cause: chp.CauseSet, at: 16 * ms}, a.events[2]}
		}, "fresh"},
		{"a key without a time to live expires", func(h *history, _, _ *life) { h.ops[3].TTL = 0 }, "expiry, linearizable"},
		{"a key expires too early", func(_ *history, _, a *life) { a.events[4].at = 100 * ms }, "expiry"},
		{"a refused update was applied", func(h *history, _, _ *life) { h.ops[4].Outcome, h.ops[4].Seq = failed, 0; h.ops[6].Saw = 0 }, "acknowledged"},
		{"the sequence of another update", func(h *history, _, _ *life) { h.ops[4].Seq = 105 }, "acknowledged"},
		{"a write that its client cannot read", func(h *history, _, _ *life) { h.ops[4].Looked = true }, "read your writes"},
		{"a client that reads what was before", func(h *history, _, _ *life) { h.ops[1].Looked, h.ops[1].Saw = true, 1 }, "read your writes"},
		{"a client that reads what came after", func(h *history, _, _ *life) { h.ops[0].Looked, h.ops[0].Saw = true, 2 }, ""},
		{"a client that has not got the deletion when its watch is closed", func(h *history, _, a *life) {
			h.ops[3].Client, h.ops[3].Looked = "a", true
			a.events, a.sequence = a.events[:4], 104
		}, "read your writes"},
		{"a client whose watch is closed before it reports a deletion", func(h *history, _, a *life) {
			h.ops[3].Client, h.ops[3].Looked = "a", true
			a.events, a.sequence = a.events[:4], 105
		}, ""},
		{"a call that returned the sequence of another update", func(h *history, _, _ *life) { h.ops[0].Seq = 102 }, "acknowledged, linearizable, program order"},
		{"a call that returned the sequence of a new snapshot, which is reported late", func(h *history, all, _ *life) {
			h.ops[0].Seq, h.ops[0].Synced = 102, true
			all.installs = append(all.installs, install{at: 5 * time.Second})
		}, ""},
		{"a client that sees the deletion after", func(h *history, _, _ *life) { h.ops[0].Looked = true }, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			h, all, a := scene()
			c.spoil(h, all, a)
			h.check([]*life{all, a}, []string{"/a/k", "/b/k"}, 10*time.Second, false)
			failed := map[string]bool{}
			for _, v := range h.broken {
				failed[v.Check] = true
			}
			if got := strings.Join(slices.Sorted(maps.Keys(failed)), ", "); got != c.checks {
				t.Errorf("failed: %s, want %s\n%v", got, c.checks, h.broken)
			}
		})
	}
}

// conditional adds to a sound history: two accounts of a transaction, a conflict, a lock that two take
// one after the other, and additions.
func conditional(h *history, all *life) {
	for _, o := range []*op{
		{ID: 8, Group: 8, Size: 2, Kind: opSet, If: condSame, Key: "/x/a0", Call: 230 * ms, Return: 240 * ms, Outcome: acked, Seq: 107},
		{ID: 9, Group: 8, Size: 2, Kind: opSet, If: condSame, Key: "/x/a1", Call: 230 * ms, Return: 240 * ms, Outcome: acked, Seq: 108},
		{ID: 10, Kind: opSet, If: condSame, Key: "/x/a0", Call: 250 * ms, Return: 260 * ms, Outcome: conflicted, Saw: 8, PresentSeq: 107, Looked: true, Shown: 107},
		{ID: 11, Kind: opSet, If: condSame, Key: lockKey, Call: 270 * ms, Return: 280 * ms, Outcome: acked, Seq: 109, Released: 290 * ms},
		{ID: 12, Kind: opDelete, If: condSame, Key: lockKey, Expect: 11, ExpectSeq: 109, Call: 290 * ms, Return: 300 * ms, Outcome: unknown},
		{ID: 13, Kind: opSet, If: condSame, Key: lockKey, Call: 292 * ms, Return: 310 * ms, Outcome: acked, Seq: 111, Released: 320 * ms},
		{ID: 14, Kind: opSet, If: condAdd, Key: sumKey, Call: 330 * ms, Return: 340 * ms, Outcome: acked, Value: sumBase + 1},
		{ID: 15, Kind: opSet, If: condAdd, Key: sumKey, Call: 350 * ms, Return: 360 * ms, Outcome: unknown},
		{ID: 16, Kind: opSet, If: condAdd, Key: sumKey, Call: 370 * ms, Return: 380 * ms, Outcome: acked, Value: sumBase + 3},
	} {
		o.Client = "all"
		h.ops = append(h.ops, o)
	}
	for _, e := range []event{
		{seq: 107, key: "/x/a0", value: 8, uuid: [16]byte{7}, transaction: 108},
		{seq: 108, key: "/x/a1", value: 9, uuid: [16]byte{7}, transaction: 108},
		{seq: 109, key: lockKey, value: 11, uuid: [16]byte{9}},
		{seq: 110, key: lockKey, uuid: [16]byte{10}, cause: chp.CauseDeleted},
		{seq: 111, key: lockKey, value: 13, uuid: [16]byte{11}},
		{seq: 112, key: sumKey, value: sumBase + 1, uuid: [16]byte{12}},
		{seq: 113, key: sumKey, value: sumBase + 2, uuid: [16]byte{13}},
		{seq: 114, key: sumKey, value: sumBase + 3, uuid: [16]byte{14}},
	} {
		e.live, e.at = true, 400*ms
		all.events = append(all.events, e)
	}
}

// TestConditionChecks: each check of conditions finds its violation, and nothing in a sound history.
func TestConditionChecks(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		spoil  func(ops []*op, events []event) // ops by ID
		checks string
	}{
		{"nothing", func([]*op, []event) {}, ""},
		{"an addition to what was there before", func(ops []*op, _ []event) { ops[16].Value = sumBase + 1 }, "linearizable"},
		{"one that held was reported as a conflict", func(ops []*op, _ []event) { ops[10].Expect = 8 }, "linearizable"},
		{"a conflict with what was not there", func(ops []*op, _ []event) { ops[10].Saw, ops[10].PresentSeq = 9, 108 }, "conflict, linearizable, read your conflicts"},
		{"a conflict that was made", func(ops []*op, _ []event) { ops[13].Outcome, ops[13].Seq, ops[13].Saw = conflicted, 0, 0 }, "exact, linearizable"},
		{"the sequence of another update", func(ops []*op, _ []event) { ops[13].Seq = 110 }, "acknowledged"},
		{"two with one sequence", func(ops []*op, _ []event) { ops[8].Seq, ops[9].Seq = 108, 108 }, "acknowledged, transaction"},
		{"a transaction in pieces", func(_ []*op, events []event) {
			events[1].seq, events[2].seq = 109, 108
			events[1], events[2] = events[2], events[1]
		}, "acknowledged, transaction"},
		{"a watch that does not name the transaction", func(_ []*op, events []event) { events[0].transaction = 0 }, "transaction"},
		{"a replica that does not show a conflict", func(ops []*op, _ []event) { ops[10].Shown = 106 }, "read your conflicts"},
		{"two that have a lock", func(ops []*op, _ []event) { ops[11].Released, ops[12].Call = 315*ms, 315*ms }, "exclusion, linearizable"},
		{"a token that falls", func(ops []*op, events []event) { ops[11].Seq, ops[13].Call = 112, 292*ms }, "acknowledged, exclusion, linearizable, program order"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h, all, a := scene()
			conditional(h, all)
			n := len(all.events) - 8
			c.spoil(append([]*op{nil}, h.ops...), all.events[n:])
			h.check([]*life{all, a}, []string{"/x/a0", "/x/a1", lockKey, sumKey}, 10*time.Second, false)
			failed := map[string]bool{}
			for _, v := range h.broken {
				failed[v.Check] = true
			}
			if got := strings.Join(slices.Sorted(maps.Keys(failed)), ", "); got != c.checks {
				t.Errorf("failed: %s, want %s\n%v", got, c.checks, h.broken)
			}
		})
	}
	h := &history{}
	for i := range accounts {
		h.ops = append(h.ops, &op{ID: uint64(i + 1), Amount: funds / accounts})
	}
	h.ops = append(h.ops, &op{ID: accounts + 1, Amount: 1})
	content := map[string]uint64{}
	h.checkAccounts("none", content)
	for i := range accounts {
		content[accountKey(i)] = uint64(i + 1)
	}
	h.checkAccounts("all", content)
	if len(h.broken) > 0 {
		t.Error(h.broken)
	}
	content[accountKey(2)] = accounts + 1
	h.checkAccounts("a part of a transfer", content)
	delete(content, accountKey(2))
	h.checkAccounts("a part of the opening", content)
	if len(h.broken) != 2 {
		t.Error(h.broken)
	}
}

// TestValues: a value names its operation, and shows when it is not whole.
func TestValues(t *testing.T) {
	t.Parallel()
	for _, size := range []int{1, 20, 5000} {
		value := appendValue(nil, 77, size)
		if id, err := readValue(value); id != 77 || err != nil {
			t.Errorf("%d bytes: %d, %v", size, id, err)
		}
		if size < 20 {
			continue
		}
		for _, bad := range [][]byte{value[:size-1], append(value[:size-1:size-1], '!'), append(value[:size:size], 'a')} {
			if _, err := readValue(bad); err == nil {
				t.Errorf("%q passes", bad)
			}
		}
	}
}

// TestMessages: a proxy that leaves out updates cuts the stream between messages,
// however the bytes come.
func TestMessages(t *testing.T) {
	t.Parallel()
	frame := func(more bool, body string) string {
		flags := byte(0)
		if more {
			flags = flagMore
		}
		if len(body) > 255 {
			return string(binary.BigEndian.AppendUint64([]byte{flags | flagLong}, uint64(len(body)))) + body
		}
		return string([]byte{flags, byte(len(body))}) + body
	}
	update := func(key string, size int) string {
		return frame(true, key) + frame(true, "12345678") + frame(true, "") + frame(true, "") + frame(false, strings.Repeat("v", size))
	}
	greeting := strings.Repeat("g", greetingSize)
	ready := string([]byte{flagCommand, 6}) + "\x05READY"
	first, second, third := update("/a", 3), update("/b", 70_000), update("/c", 0)
	hugz := update("HUGZ", 0)
	all := greeting + ready + hugz + first + second + hugz + third
	for _, size := range []int{1, 7, 64, 1000, len(all)} {
		var m messages
		n := 0
		var out []byte
		for rest := all; len(rest) > 0; {
			part := rest[:min(size, len(rest))]
			rest = rest[len(part):]
			out = append(out, m.admit([]byte(part), func() bool { n++; return n == 2 })...)
		}
		if want := greeting + ready + hugz + first + hugz + third; string(out) != want || n != 3 {
			t.Errorf("in pieces of %d bytes: %d updates, %q", size, n, out)
		}
	}
}
