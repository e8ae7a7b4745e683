package espresso

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"clustermap/zmtp"
)

// A writer counts messages and subscriptions separately, and only complete records.
func TestWritten(t *testing.T) {
	t.Parallel()
	record := func(from Direction, frames ...string) []byte {
		var all [][]byte
		for _, f := range frames {
			all = append(all, []byte(f))
		}
		wire := zmtp.AppendMessage(nil, all...)
		return append(appendHead(nil, byte(from), 1, len(wire)), wire...)
	}
	records := bytes.Join([][]byte{
		record(DirectionFromBackend, "\x01A"), record(DirectionFromFrontend, "A", "value"), appendLostRecord(nil, 1, 7, 700),
		record(DirectionFromFrontend, "\x01not a subscription"), record(DirectionFromBackend, ""), record(DirectionFromBackend, "\x00A"),
	}, nil)
	for _, c := range []struct {
		room                    int
		messages, subscriptions uint64
	}{{len(records), 3, 2}, {len(records) - 1, 3, 1}, {len(record(DirectionFromBackend, "\x01A")), 0, 1}, {5, 0, 0}} {
		w, err := NewWriter(&failing{fileHead + c.room}, Ends{zmtp.TypeXSub, zmtp.TypeXPub})
		must(t, err)
		if err := w.write(records); (err == nil) != (c.room == len(records)) {
			t.Errorf("room for %d bytes: %v", c.room, err)
		}
		if messages, subscriptions := w.Written(); messages != c.messages || subscriptions != c.subscriptions {
			t.Errorf("room for %d bytes: %d messages, %d subscriptions; want %d, %d", c.room, messages, subscriptions, c.messages, c.subscriptions)
		}
	}
}

// endless is a file for which each write causes another message.
type endless struct {
	more   func()
	writes int
}

var errEndless = errors.New("no end of writes")

func (e *endless) Write(b []byte) (int, error) {
	if e.writes++; e.writes > 5 {
		return 0, errEndless
	}
	e.more()
	return len(b), nil
}

// The context ends Record even if there is always more to write.
func TestRecordEndsInFlood(t *testing.T) {
	t.Parallel()
	p := newPipeline(t, Options{})
	o := p.tap.Observe(Filter{})
	t.Cleanup(o.Close)
	ctx, cancel := context.WithCancel(testContext(t))
	defer cancel()
	p.pass(t, "first")
	file := &endless{more: func() {}}
	w, err := NewWriter(file, p.tap.Ends())
	must(t, err)
	file.more = func() {
		cancel()
		p.pass(t, "more")
	}
	if err := o.Record(ctx, w); !errors.Is(err, context.Canceled) {
		t.Errorf("%v after %d writes", err, file.writes)
	}
}

// Times that decrease a lot are due at once, however slow the speed is.
func TestPlayFarBack(t *testing.T) {
	t.Parallel()
	if got := played(t, paced(t, 0, -1000*time.Hour, -1), 1e-300); len(got) != 3 {
		t.Errorf("%d events", len(got))
	}
}
