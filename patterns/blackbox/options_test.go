package blackbox

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"clustermap/sockets"
	"clustermap/zmtp"
)

// faults returns the fields of the *OptionError in err.
func faults(err error) (fields []string) {
	if err == nil {
		return nil
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []string{"?" + err.Error()}
	}
	for _, e := range joined.Unwrap() {
		if fault, ok := errors.AsType[*OptionError](e); ok {
			fields = append(fields, fault.Field)
		}
	}
	slices.Sort(fields)
	return fields
}

// TestOptions: all invalid options are reported at once.
func TestOptions(t *testing.T) {
	t.Parallel()
	handle := func(*Batch) {}
	good := func(change func(*Options)) Options {
		o := Options{Connect: []string{"tcp://127.0.0.1:1"}, Shards: SpreadAll(2), Handle: handle}
		change(&o)
		return o
	}
	for _, c := range []struct {
		name string
		o    Options
		want []string
	}{
		{"good", good(func(*Options) {}), nil},
		{"zero", Options{}, []string{"Handle", "Shards"}},
		{"no endpoint", good(func(o *Options) { o.Connect = nil }), []string{"Shards[0].Connect", "Shards[1].Connect"}},
		{"an endpoint in each shard", good(func(o *Options) {
			o.Shards[0].Connect, o.Shards[1].Connect, o.Connect = o.Connect, o.Connect, nil
		}), nil},
		{"a shard without topics", good(func(o *Options) { o.Shards[1].Topics = nil }), []string{"Shards[1].Topics"}},
		{"more shards than topics", good(func(o *Options) { o.Shards = Spread(2, "A") }), []string{"Shards[1].Topics"}},
		{"too many shards", good(func(o *Options) { o.Shards = Spread(MaxShards+1, slices.Repeat([]string{"A"}, MaxShards+1)...) }), nil},
		{"workers", good(func(o *Options) { o.Workers = -1 }), []string{"Workers"}},
		{"too many workers", good(func(o *Options) { o.Workers = MaxWorkers + 1 }), []string{"Workers"}},
		{"queues", good(func(o *Options) { o.QueueBatches, o.QueueBytes = -1, -1 }), []string{"QueueBatches", "QueueBytes"}},
		{"a long queue", good(func(o *Options) { o.QueueBatches = MaxQueueBatches + 1 }), []string{"QueueBatches"}},
		{"policy", good(func(o *Options) { o.Policy = 2 }), []string{"Policy"}},
		{"a core that cannot be", good(func(o *Options) { o.Cores = []int{-1} }), []string{"Cores"}},
		{"socket", good(func(o *Options) {
			o.Socket = sockets.Options{RecvTimeout: time.Second, InvertMatching: true}
		}), []string{"Socket.InvertMatching", "Socket.RecvTimeout"}},
		{"the empty topic beside others", good(func(o *Options) { o.Shards[0].Topics = []string{""} }), []string{"Shards[1].Topics"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			_, err := c.o.withDefaults()
			got := faults(err)
			if c.name == "too many shards" {
				if !slices.Contains(got, "Shards") {
					t.Errorf("faults: %v", got)
				}
				return
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("faults: %v, want %v", got, c.want)
			}
		})
	}
}

// TestSocketErrors: errors of endpoints and socket options are those of package sockets,
// and no goroutine is left.
func TestSocketErrors(t *testing.T) {
	t.Parallel()
	o := Options{Connect: []string{"tcp://127.0.0.1:1", "tcp://*:1"}, Shards: SpreadAll(3), Handle: func(*Batch) {}}
	if _, err := New(o); err == nil {
		t.Error("a wildcard can be connected to")
	} else if _, ok := errors.AsType[*sockets.EndpointError](err); !ok {
		t.Errorf("the error is %v", err)
	}
	o.Connect = o.Connect[:1]
	o.Socket.TOS = 1000
	if _, err := New(o); err == nil {
		t.Error("TOS 1000 is accepted")
	}
	o.Socket.TOS = 0
	o.Shards = []Shard{{Topics: []string{strings.Repeat("x", 33<<10)}}}
	if _, err := New(o); !errors.Is(err, sockets.ErrTooLarge) {
		t.Errorf("a long topic: %v", err)
	}
}

// TestDisjoint: two shards at one endpoint must not both match a topic.
func TestDisjoint(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		shards [][]string // topics, and endpoints after "@"
		want   []string
	}{
		{"different", [][]string{{"A", "C"}, {"B"}}, nil},
		{"equal", [][]string{{"A"}, {"A"}}, []string{"Shards[1].Topics"}},
		{"prefix", [][]string{{"A/long"}, {"A"}}, []string{"Shards[0].Topics"}},
		{"prefix behind others", [][]string{{"A", "AAA"}, {"B"}, {"AAAA"}}, []string{"Shards[2].Topics"}},
		{"prefix around others", [][]string{{"A"}, {"B"}, {"A/b", "A/c"}}, []string{"Shards[2].Topics"}},
		{"within a shard", [][]string{{"A", "A", "AA"}, {"B"}}, nil},
		{"a common beginning", [][]string{{"AA"}, {"AB"}}, nil},
		{"different endpoints", [][]string{{"A", "@tcp://127.0.0.1:1"}, {"A", "@tcp://127.0.0.1:2"}}, nil},
		{"a common endpoint", [][]string{{"A", "@tcp://127.0.0.1:1", "@tcp://127.0.0.1:2"}, {"A", "@tcp://127.0.0.1:2"}}, []string{"Shards[1].Topics"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			o := Options{Connect: []string{"tcp://127.0.0.1:9"}, Handle: func(*Batch) {}}
			for _, all := range c.shards {
				var s Shard
				for _, text := range all {
					if endpoint, ok := strings.CutPrefix(text, "@"); ok {
						s.Connect = append(s.Connect, endpoint)
					} else {
						s.Topics = append(s.Topics, text)
					}
				}
				o.Shards = append(o.Shards, s)
			}
			_, err := o.withDefaults()
			if got := faults(err); !slices.Equal(got, c.want) {
				t.Errorf("faults: %v, want %v (%v)", got, c.want, err)
			}
		})
	}
}

// TestSpread: topics are distributed in turn.
func TestSpread(t *testing.T) {
	t.Parallel()
	got := Spread(2, "a", "b", "c")
	if len(got) != 2 || !slices.Equal(got[0].Topics, []string{"a", "c"}) || !slices.Equal(got[1].Topics, []string{"b"}) {
		t.Errorf("Spread: %v", got)
	}
	if got := Spread(0, "a"); len(got) != 0 {
		t.Errorf("Spread(0): %v", got)
	}
	if got := SpreadAll(-1); len(got) != 0 {
		t.Errorf("SpreadAll(-1): %v", got)
	}
}

func TestPolicyString(t *testing.T) {
	t.Parallel()
	for p, want := range map[Policy]string{PolicyBlock: "block", PolicyDrop: "drop", 7: "Policy(7)"} {
		if p.String() != want {
			t.Errorf("%d is %q, want %q", p, p, want)
		}
	}
}

// TestKeyUnused: with one worker, Key is not called.
func TestKeyUnused(t *testing.T) {
	t.Parallel()
	pub := publisher(t, anyPort)
	l := newLedger()
	open(t, Options{
		Connect: []string{pub.LastEndpoint()}, Shards: SpreadAll(2), Workers: 1, Handle: l.handle,
		Key: func(zmtp.WireMessage) []byte { panic("the key is asked for") },
	})
	flood(t, pub, []string{"a", "b"}, 0, 10)
	l.wait(t, 20)
}
