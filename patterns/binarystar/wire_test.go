package binarystar

import (
	"bytes"
	"reflect"
	"slices"
	"strings"
	"testing"

	"clustermap/sockets"
)

func TestParse(t *testing.T) {
	t.Parallel()
	whole := candidate{state: StateActive, role: RoleBackup, epoch: 1<<40 + 7, payload: []byte("load")}
	message := appendLong(nil, whole)
	if want := []byte("B\x01\x03\x02\x00\x00\x01\x00\x00\x00\x00\x07load"); !bytes.Equal(message, want) {
		t.Errorf("long form: %q", message)
	}
	for _, c := range []struct {
		text string
		own  Role
		want candidate
	}{
		{string(message), RolePrimary, whole},
		{"1", RoleBackup, candidate{state: StatePrimary, role: RolePrimary, guide: true}},
		{"1", RolePrimary, candidate{state: StatePrimary, role: RolePrimary, guide: true}},
		{"2", RolePrimary, candidate{state: StateBackup, role: RoleBackup, guide: true}},
		{"3", RolePrimary, candidate{state: StateActive, role: RoleBackup, guide: true}},
		{" 4\n", RoleBackup, candidate{state: StatePassive, role: RolePrimary, guide: true}},
	} {
		got, err := parse(sockets.Message{[]byte(c.text)}, c.own)
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
		with(1, 2), with(2, 0), with(2, 6), with(3, 0), with(3, 3), with(4, 0x80),
		with(2, byte(StatePrimary)), string(message) + strings.Repeat("x", MaxPayload),
	} {
		if got, err := parse(sockets.Message{[]byte(text)}, RolePrimary); err == nil {
			t.Errorf("%q: %+v", text, got)
		}
	}
	if _, err := parse(sockets.Message{[]byte("3"), nil}, RolePrimary); err == nil {
		t.Error("two frames tell a state")
	}
}

// FuzzParse: any message is rejected or has a valid state.
func FuzzParse(f *testing.F) {
	f.Add([]byte("3"))
	f.Add(appendLong(nil, candidate{state: StateYielding, role: RolePrimary, epoch: MaxEpoch, payload: []byte("x")}))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := parse(sockets.Message{b}, RoleBackup)
		if err != nil {
			return
		}
		for s := StatePrimary; s <= StateYielding; s++ {
			m := machineIn(RoleBackup, s, 3).hear(interval, c)
			if m.epoch < 3 || m.epoch > MaxEpoch {
				t.Errorf("epoch %d", m.epoch)
			}
		}
		if !c.guide && !bytes.Equal(appendLong(nil, c), b) {
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
