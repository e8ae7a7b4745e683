package chp

import (
	"fmt"
	"testing"
)

// A change in a view has the properties of its update, as a watch has.
func TestViewChangeHasProperties(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s := startServer(t, ServerOptions{})
	c := followServer(t, s.Endpoints().Snapshot)
	must(t, c.Set(ctx, "/a", []byte("1"), WithProperty("by", "alice")))
	must(t, c.Flush(ctx))
	log := make(chan string, 10)
	newView(t, c, "", ViewOptions[int]{OnChange: func(v ViewChange[int]) { log <- fmt.Sprintf("%q", v.Properties) }})
	must(t, c.Set(ctx, "/a", []byte("2"), WithProperty("by", "bob")))
	must(t, c.Delete(ctx, "/a"))
	wantLog(t, log, `"by=alice\n"`, `"by=bob\n"`, `""`)
}
