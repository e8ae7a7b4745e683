package lastvalue

import (
	"fmt"
	"testing"

	"clustermap/internal/interop"
)

// data is a message that a subscriber has received.
type data struct{ Topic, Data string }

// TestInterop: the guide's publisher of a thousand topics and its subscribers of one
// topic work with the cache unchanged. Two subscribers of the same topic each get its
// last value, and a subscriber of a prefix gets those of all its topics.
func TestInterop(t *testing.T) {
	t.Parallel()
	interop.Require(t)
	ctx := testContext(t)
	c, err := New(Options{})
	must(t, err)
	t.Cleanup(func() { must(t, c.Close()) })
	in, err := c.BindPublisher(ctx, anyPort)
	must(t, err)
	out, err := c.Bind(ctx, anyPort)
	must(t, err)

	pub := interop.Python(t, "testdata/patho.py", "pub", in)
	// A PUB drops messages until the subscription of the cache has arrived.
	eventually(t, "all topics have a value", func() bool {
		pub.Call(interop.Op{"op": "all", "text": "Save Roger"}, nil)
		return c.Stats().Topics == 1000
	})
	// Wait until none of the repeated messages is in flight any more.
	eventually(t, "one that follows them comes", func() bool {
		pub.Call(interop.Op{"op": "one", "topic": "end", "text": "end"}, nil)
		_, ok := c.Get("end")
		return ok
	})
	sub := func(topic ...string) *interop.Process {
		return interop.Python(t, "testdata/patho.py", append([]string{"sub", out}, topic...)...)
	}
	random, first, second, many := sub(), sub("123"), sub("123"), sub("12")
	wants := func(p *interop.Process, topic, text string) {
		t.Helper()
		var got data
		p.Event("data", &got)
		if topic != "" && got.Topic != topic || got.Data != text {
			t.Fatalf("got %+v, want %s %s", got, topic, text)
		}
	}
	wants(random, "", "Save Roger")
	wants(first, "123", "Save Roger")
	wants(second, "123", "Save Roger")
	for n := range 10 {
		wants(many, fmt.Sprint(120+n), "Save Roger")
	}
	pub.Call(interop.Op{"op": "one", "topic": "123", "text": "Off with his head!"}, nil)
	for _, p := range []*interop.Process{first, second, many} {
		wants(p, "123", "Off with his head!")
	}
	wants(sub("123"), "123", "Off with his head!")
	// No other subscriber gets it again.
	pub.Call(interop.Op{"op": "one", "topic": "123", "text": "Done"}, nil)
	wants(first, "123", "Done")
	wants(second, "123", "Done")
	wants(many, "123", "Done")
}
