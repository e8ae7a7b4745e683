package partner

import (
	"slices"
	"testing"
	"time"

	"clustermap/chp/internal/ledger"
	"clustermap/chp/internal/state"
	"clustermap/internal/kvmsg"
)

// TestBaseHead: the head of a map is read as it was written, and nothing else is taken for one.
func TestBaseHead(t *testing.T) {
	t.Parallel()
	h := []state.Reign{{ID: 1, Last: 10}, {ID: 2, Last: 20}}
	b := baseHead{run: 3, mapID: [ledger.MapIDSize]byte{1, 2}, reigns: h}
	if got, ok := parseBaseHead(b.append(nil)); !ok || got.run != b.run || got.mapID != b.mapID || !slices.Equal(got.reigns, h) {
		t.Errorf("%v, %v", got, ok)
	}
	for _, bad := range []string{"", "0123456789abcdef", "0123456789abcdef01234567", "0123456789abcdef0123456789", string(state.AppendReigns(make([]byte, 8+ledger.MapIDSize), []state.Reign{{ID: 1, Last: -1}})), string(make([]byte, 8+ledger.MapIDSize+(state.MaxReigns+1)*state.ReignSize))} {
		if _, ok := parseBaseHead([]byte(bad)); ok {
			t.Errorf("%d bytes are taken for a BASE", len(bad))
		}
	}
}

// TestTimesOnTheWire: what is left of times to live is read as it was written, and nothing
// else is taken for it.
func TestTimesOnTheWire(t *testing.T) {
	t.Parallel()
	r := kvmsg.Record(kvmsg.AppendRecord(nil, []byte("/key"), 7, nil, nil, []byte("v")))
	body := appendTime(appendTime(nil, r, time.Hour), r, 1)
	key, seq, left, rest, ok := parseTime(body)
	if string(key) != "/key" || seq != 7 || left != time.Hour || !ok {
		t.Errorf("%q %d %v %v", key, seq, left, ok)
	}
	if _, _, left, rest, ok := parseTime(rest); left != 1 || len(rest) > 0 || !ok {
		t.Errorf("%v %d %v", left, len(rest), ok)
	}
	for n := range len(rest) {
		if _, _, _, _, ok := parseTime(rest[:n]); ok {
			t.Errorf("%d bytes are taken for a time", n)
		}
	}
	for _, left := range []time.Duration{0, -1, kvmsg.MaxTTL + 1} {
		if _, _, _, _, ok := parseTime(appendTime(nil, r, left)); ok {
			t.Errorf("%v is taken for a time", left)
		}
	}
}
