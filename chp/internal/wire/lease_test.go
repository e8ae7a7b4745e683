package wire

import (
	"bytes"
	"testing"
	"time"

	"clustermap/internal/kvmsg"
)

// FuzzLeases: a question and an answer that are taken are what they would be sent as, and nothing else is.
func FuzzLeases(f *testing.F) {
	f.Add([]byte{0, 0, 0, 0, 0, 0, 0, 7, 1}, make([]byte, 32))
	f.Add([]byte{0, 0, 0, 0, 0, 0, 0, 7, 9}, make([]byte, 17))
	f.Add([]byte{0, 0, 0, 0, 0, 0, 0, 7}, make([]byte, 24))
	f.Fuzz(func(t *testing.T, head, body []byte) {
		for _, command := range []string{askLeases, answerLeases} {
			m := kvmsg.AppendFrame(nil, []byte(command), kvmsg.FlagMore)
			m = kvmsg.AppendFrame(m, head, kvmsg.FlagMore)
			m = kvmsg.AppendFrame(m, body, 0)
			if number, kind, ids, ok := ParseLeaseQuestion(m, nil); ok && !bytes.Equal(AppendLeaseQuestion(nil, number, kind, ids), m) {
				t.Errorf("%x is taken for a question about %v", m, ids)
			}
			if number, left, ok := ParseLeases(m, nil); ok && !bytes.Equal(AppendLeases(nil, number, left), m) {
				t.Errorf("%x is taken for the answer %v", m, left)
			}
		}
	})
}

func TestLeaseMessages(t *testing.T) {
	t.Parallel()
	ids := []kvmsg.LeaseID{{1}, {2, 3}}
	m := AppendLeaseQuestion(nil, 7, LeaseRevoke, ids)
	number, kind, got, ok := ParseLeaseQuestion(m, nil)
	if !ok || number != 7 || kind != LeaseRevoke || len(got) != 2 || got[1] != ids[1] {
		t.Errorf("%d, %d, %v, %v", number, kind, got, ok)
	}
	for _, bad := range [][]byte{
		AppendLeaseQuestion(nil, 7, leaseKinds, ids), AppendLeaseQuestion(nil, 7, LeaseLook, nil),
		AppendLeaseQuestion(nil, 7, LeaseLook, make([]kvmsg.LeaseID, MaxLeases+1)), AppendSync(nil, 1, 2),
	} {
		if _, _, _, ok := ParseLeaseQuestion(bad, nil); ok {
			t.Errorf("%x is taken for a question", bad)
		}
	}
	left := []time.Duration{LeaseGone, LeaseEnding, time.Hour}
	a := AppendLeases(nil, 9, left)
	number, times, ok := ParseLeases(a, nil)
	if !ok || number != 9 || len(times) != 3 || times[1] != LeaseEnding || times[2] != time.Hour || !IsLeases(a) {
		t.Errorf("%d, %v, %v", number, times, ok)
	}
	if !bytes.Equal(AppendLeases(nil, number, times), a) {
		t.Error("an answer changes")
	}
}
