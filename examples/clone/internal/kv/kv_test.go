package kv

import (
	"reflect"
	"testing"
	"time"
)

func TestFrames(t *testing.T) {
	t.Parallel()
	m := Message{Key: "/a/1", Sequence: 1 << 40, UUID: make([]byte, 16), Properties: "ttl=5\n", Body: []byte("on")}
	if got, ok := ParseFive(m.Five()); !ok || !reflect.DeepEqual(got, m) {
		t.Errorf("five frames give %v, %v", got, ok)
	}
	if got, ok := ParseThree(m.Three()); !ok || !reflect.DeepEqual(got, Message{Key: m.Key, Sequence: m.Sequence, Body: m.Body}) {
		t.Errorf("three frames give %v, %v", got, ok)
	}
	eight, four := make([]byte, 8), make([]byte, 4)
	for _, frames := range [][][]byte{nil, {nil}, {nil, eight}, {nil, four, nil}, {nil, eight, nil, nil}, {nil, four, nil, nil, nil}} {
		_, three := ParseThree(frames)
		_, five := ParseFive(frames)
		if three || five {
			t.Errorf("%v is read as a message", frames)
		}
	}
}

func TestTTL(t *testing.T) {
	t.Parallel()
	for properties, want := range map[string]time.Duration{
		"":                       0,
		"ttl=0\n":                0,
		"ttl=5\n":                5 * time.Second,
		"colour=red\nttl=1.5\n":  1500 * time.Millisecond,
		"ttl=\n":                 0,
		"ttl=-1\n":               0,
		"ttl=NaN\n":              0,
		"ttl=1e300\n":            0,
		"xttl=5\n":               0,
		"ttl=5\nttl=6\n":         5 * time.Second,
		"no property at all, \n": 0,
	} {
		if got := (Message{Properties: properties}).TTL(); got != want {
			t.Errorf("%q: %v, want %v", properties, got, want)
		}
	}
}
