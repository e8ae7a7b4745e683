package blackbox

import (
	"context"
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"clustermap/zmtp"
)

// TestOurs: a measurement in this process comes to its end, and holds.
func TestOurs(t *testing.T) {
	t.Parallel()
	for _, s := range []Spec{
		{Shards: 1},
		{Shards: 1, Workers: 3, Filtered: true, Pin: true},
		{Shards: 2, Workers: 2},
		{Shards: 3, Channels: true},
		{Shards: 3, Workers: 1, Channels: true, Filtered: true},
	} {
		t.Run(fmt.Sprintf("%+v", s), func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
			defer cancel()
			s.Count = 3 * cycle
			said := make(chan []string, 1)
			failed := make(chan error, 1)
			go func() { failed <- publish(ctx, s, func(v any) { said <- v.([]string) }) }()
			select {
			case s.Endpoints = <-said:
			case err := <-failed:
				t.Fatal(err)
			}
			f, err := ours(ctx, s)
			if err == nil {
				err = <-failed
			}
			if err != nil {
				t.Fatal(err)
			}
			if err := f.check(s.Count); err != nil || f.Elapsed <= 0 {
				t.Errorf("%+v: %v", f, err)
			}
		})
	}
}

// TestCheck verifies that Check detects lost, duplicated, reordered and changed messages.
func TestCheck(t *testing.T) {
	t.Parallel()
	var all []zmtp.WireMessage
	for _, b := range feed(0, 1) {
		for size := zmtp.FrameSize(Size); len(b) > 0; b = b[size:] {
			all = append(all, zmtp.WireMessage(b[:size]))
		}
	}
	for _, c := range []struct {
		name   string
		change func(all []zmtp.WireMessage) []zmtp.WireMessage
		good   bool
	}{
		{"nothing", func(all []zmtp.WireMessage) []zmtp.WireMessage { return all }, true},
		{"lost", func(all []zmtp.WireMessage) []zmtp.WireMessage { return append(all[:5:5], all[6:]...) }, false},
		{"doubled", func(all []zmtp.WireMessage) []zmtp.WireMessage { return append(all[:5:5], all[4:]...) }, false},
		{"another in its place", func(all []zmtp.WireMessage) []zmtp.WireMessage { all[5] = all[6]; return all }, false},
		{"out of order", func(all []zmtp.WireMessage) []zmtp.WireMessage {
			all[0], all[Keys+indexOf(all[Keys:], all[0])] = all[Keys+indexOf(all[Keys:], all[0])], all[0]
			return all
		}, false},
		{"changed", func(all []zmtp.WireMessage) []zmtp.WireMessage {
			m := append(zmtp.WireMessage{}, all[7]...)
			m[2+AtValue]++
			all[7] = m
			return all
		}, false},
		{"short", func(all []zmtp.WireMessage) []zmtp.WireMessage {
			all[7] = zmtp.AppendFrame(nil, make([]byte, Size-1), false)
			return all
		}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			n := newCounter(cycle, 1)
			n.start()
			for _, m := range c.change(append([]zmtp.WireMessage{}, all...)) {
				n.checks[0].message(m)
				n.add(1)
			}
			if _, err := n.figure(); (err == nil) != c.good {
				t.Errorf("the check says %v", err)
			}
		})
	}
}

// indexOf returns where the first message with the key of m is.
func indexOf(all []zmtp.WireMessage, m zmtp.WireMessage) int {
	key := func(m zmtp.WireMessage) uint32 { return binary.LittleEndian.Uint32(m[2+AtKey:]) }
	for i := range all {
		if key(all[i]) == key(m) {
			return i
		}
	}
	return -1
}
