package main

import (
	"strings"
	"testing"
)

// The key that is updated most comes first, with its share, for people and for programs.
func TestHotCommand(t *testing.T) {
	t.Parallel()
	s := serve(t)
	args := []string{"hot", "--watch", "--interval", "100ms", "--server", s.endpoint}
	text, lines := start(t, args...), start(t, append(args, "--json")...)
	if head := text.line(); strings.Join(strings.Fields(head), " ") != "UPDATES/S SHARE BYTES/S KEY" {
		t.Errorf("%q", head)
	}
	ended := make(chan struct{})
	t.Cleanup(func() { <-ended })
	stop := t.Context().Done()
	go func() {
		defer close(ended)
		for {
			select {
			case <-stop:
				return
			default:
				try(t, "set", "/hot", "v", "--server", s.endpoint)
			}
		}
	}()
	for !strings.HasSuffix(text.line(), " /hot") {
	}
	if o := object(t, lines.line()); o["key"] != "/hot" || o["share"] != 1.0 || o["updates_per_second"].(float64) <= 0 || o["bytes_per_second"].(float64) <= 0 {
		t.Errorf("%v", o)
	}
	try(t, "hot", "--interval", "11s").expect(t, exitUsage, "at most 10s")
	try(t, "hot", "--most", "0").expect(t, exitUsage, "1 to 100")
	try(t, "hot", "--server", "tcp://127.0.0.1:1").expect(t, exitNoServer, "no server answered")
}
