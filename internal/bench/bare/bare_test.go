package bare

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
)

func TestFramesComeBackAtEverySplit(t *testing.T) {
	t.Parallel()
	for _, size := range []int{0, 1, 255, 256, 70_000} {
		value := bytes.Repeat([]byte{'v'}, size)
		wire := appendMessage(nil, "/bench/00001", value)
		var m message
		for cut := 0; cut < len(wire); cut += 1 + cut/512 {
			if n, err := m.parse(wire[:cut], 0); n != 0 || err != nil {
				t.Fatalf("%d of %d bytes: %d, %v", cut, len(wire), n, err)
			}
		}
		n, err := m.parse(append(wire, "next"...), 0)
		if n != len(wire) || err != nil || string(m.key(wire)) != "/bench/00001" || !bytes.Equal(m.value(wire), value) || len(m.sequence(wire)) != 8 {
			t.Errorf("size %d: %d, %v, %+v", size, n, err, m)
		}
	}
}

func TestMalformedFramesAreRefused(t *testing.T) {
	t.Parallel()
	for name, wire := range map[string][]byte{
		"ends early":     {0, 1, 'k'},
		"goes on":        {1, 1, 'k', 1, 8, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1, 0, 1, 0},
		"short sequence": {1, 1, 'k', 1, 1, 0, 1, 0, 1, 0, 0, 0},
		"negative size":  {1 | flagLong, 255, 0, 0, 0, 0, 0, 0, 0},
	} {
		var m message
		if _, err := m.parse(wire, 0); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestTableAgreesWithMap(t *testing.T) {
	t.Parallel()
	table, model := NewTable(0), map[string]string{}
	for range 20_000 {
		key := fmt.Sprintf("%d", rand.IntN(4000))
		value := fmt.Sprintf("%0*d", 5+rand.IntN(2), rand.IntN(1e5))
		wire := appendMessage(nil, key, []byte(value))
		var m message
		if _, err := m.parse(wire, 0); err != nil {
			t.Fatal(err)
		}
		table.store(wire, []message{m})
		model[key] = value
	}
	found := 0
	table.each(func(key, value []byte) {
		found++
		if model[string(key)] != string(value) {
			t.Errorf("%s is %s, want %s", key, value, model[string(key)])
		}
	})
	if found != len(model) {
		t.Errorf("%d keys, want %d", found, len(model))
	}
}
