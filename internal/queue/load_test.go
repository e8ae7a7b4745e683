package queue

import (
	"bytes"
	"strings"
	"testing"

	"clustermap/zmtp"
)

// TestLoadRemaining breaks a connection after every byte: of the messages
// taken, those of which no byte was written remain, whole and in order; none
// that was written remains, and at most one is lost.
func TestLoadRemaining(t *testing.T) {
	t.Parallel()
	big := string(bytes.Repeat([]byte("b"), LendFrom))
	messages := [][]byte{wire("1"), wire("2", "", "two"), wire(big), wire(strings.Repeat("l", 300)), wire(""), wire(big), wire("end")}
	pong := zmtp.AppendPong(nil, []byte("context"))
	total := len(pong)
	for _, m := range messages {
		total += len(m)
	}
	l := newLender()
	// Every byte near the borders of messages, and some inside of the large.
	for written := 0; written <= total; written++ {
		if near := borders(len(pong), messages, written); near > 20 && written%97 != 0 {
			continue
		}
		o := newOutbox(HWM{Messages: Unbounded, Bytes: Unbounded})
		o.Pong([]byte("context"))
		for _, m := range messages {
			o.OfferWire(nil, m, 1, l)
		}
		_, w := takenFrom(t, o)
		at, want, count := len(pong), []byte(nil), 0
		for _, m := range messages {
			if written <= at {
				want = append(want, m...)
				count++
			}
			at += len(m)
		}
		o.put("queued since")
		w.Written = int64(written)
		o.PutBack(w)
		got, w := takenFrom(t, o)
		if !bytes.Equal(got, append(want, wire("queued since")...)) || w.messages() != count+1 {
			t.Fatalf("broken after %d bytes: %d messages come again, want %d", written, w.messages()-1, count)
		}
	}
	if l.Refs.Load() != 0 {
		t.Errorf("%d references are left", l.Refs.Load())
	}
}

// borders returns how far the nearest border of a message is.
func borders(at int, messages [][]byte, from int) int {
	nearest := max(at-from, from-at)
	for _, m := range messages {
		at += len(m)
		nearest = min(nearest, max(at-from, from-at))
	}
	return nearest
}
