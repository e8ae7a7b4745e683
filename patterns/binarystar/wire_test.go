package binarystar

import (
	"bytes"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"clustermap/internal/election"
	"clustermap/zmtp"
)

func TestParse(t *testing.T) {
	t.Parallel()
	whole := election.Candidate{State: StateActive, Role: RoleBackup, Epoch: 1<<39 + 7, Payload: []byte("load")}
	message := appendLong(nil, whole)
	if want := []byte("B\x01\x03\x02\x00\x00\x00\x80\x00\x00\x00\x07load"); !bytes.Equal(message, want) {
		t.Errorf("long form: %q", message)
	}
	for _, c := range []struct {
		text string
		own  Role
		want election.Candidate
	}{
		{string(message), RolePrimary, whole},
		{"1", RoleBackup, election.Candidate{State: StatePrimary, Role: RolePrimary, Guide: true}},
		{"1", RolePrimary, election.Candidate{State: StatePrimary, Role: RolePrimary, Guide: true}},
		{"2", RolePrimary, election.Candidate{State: StateBackup, Role: RoleBackup, Guide: true}},
		{"3", RolePrimary, election.Candidate{State: StateActive, Role: RoleBackup, Guide: true}},
		{" 4\n", RoleBackup, election.Candidate{State: StatePassive, Role: RolePrimary, Guide: true}},
	} {
		got, err := parse(zmtp.AppendMessage(nil, []byte(c.text)), c.own)
		if err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%q: %+v, %v", c.text, got, err)
		}
	}
	with := func(at int, b byte) string {
		m := bytes.Clone(message)
		m[at] = b
		return string(m)
	}
	for _, text := range []string{
		"", "0", "5", "-1", "3x", "300", "three", "B", string(message[:header-1]),
		with(1, 2), with(2, 0), with(2, 6), with(3, 0), with(3, 3), with(4, 0x80), with(6, 1),
		with(2, byte(StatePrimary)), string(message) + strings.Repeat("x", MaxPayload),
	} {
		if got, err := parse(zmtp.AppendMessage(nil, []byte(text)), RolePrimary); err == nil {
			t.Errorf("%q: %+v", text, got)
		}
	}
	if _, err := parse(zmtp.AppendMessage(nil, []byte("3"), nil), RolePrimary); err == nil {
		t.Error("two frames tell a state")
	}
}

// FuzzParse: any message is rejected or has a valid state.
func FuzzParse(f *testing.F) {
	f.Add([]byte("3"))
	f.Add(appendLong(nil, election.Candidate{State: StateYielding, Role: RolePrimary, Epoch: MaxEpoch, Payload: []byte("x")}))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := parse(zmtp.AppendMessage(nil, b), RoleBackup)
		if err != nil {
			return
		}
		for s := StatePrimary; s <= StateYielding; s++ {
			m := election.NewMachine(RoleBackup, time.Second, 0, 3)
			m.State = s
			if m = m.Hear(time.Millisecond, c); m.Epoch < 3 || m.Epoch > MaxEpoch {
				t.Errorf("epoch %d", m.Epoch)
			}
		}
		if !c.Guide && !bytes.Equal(appendLong(nil, c), b) {
			t.Errorf("%q is %+v, and that is %q", b, c, appendLong(nil, c))
		}
	})
}

func TestTopics(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		ours  bool
		asked string
		want  []string
	}{
		{true, "", []string{"B"}},
		{true, "3", []string{"B"}},
		{false, "", []string{"1", "2", "3", "4"}},
		{false, "3", []string{"3"}},
		{false, "B", nil},
		{false, "5", nil},
	} {
		if got := topics(c.ours, c.asked); !slices.Equal(got, c.want) {
			t.Errorf("%v %q: %q", c.ours, c.asked, got)
		}
	}
}
