package chp

import (
	"errors"
	"strings"
	"testing"
)

// The application gets events for the first server, for its loss with the reason, for a
// new snapshot of the same server, and for another server. The log tells them apart too.
func TestLinkEvents(t *testing.T) {
	t.Parallel()
	first, second := newScripted(t, asOurs), newScripted(t, asOurs)
	events := make(chan LinkEvent, 100)
	var log lockedLog
	c := followScripted(t, ClientOptions{OnLink: func(e LinkEvent) { events <- e }, Logger: log.logger()}, first, second)
	next := func(kind LinkKind, s *scripted, sequence int64, former string) LinkEvent {
		t.Helper()
		e := <-events
		if e.Kind != kind || e.Server != s.name() || e.Sequence != sequence || e.Former != former || (e.Err != nil) != (kind == LinkLost) {
			t.Errorf("%v %+v, want %v of %s at %d", e.Kind, e, kind, s.name(), sequence)
		}
		return e
	}
	first.answer(1, pub{"k", 1, "v"})
	next(LinkConnected, first, 1, "")
	first.subscribed("", 1)
	first.kvpub(pub{"k", 2, "v"}, pub{"k", 5, "v"})
	lost := next(LinkLost, first, 2, "")
	if gap := (*GapError)(nil); !errors.As(lost.Err, &gap) {
		t.Errorf("it was lost for %v, want a *GapError", lost.Err)
	}
	first.answer(5, pub{"k", 5, "v"})
	next(LinkResynced, first, 5, "")
	first.close()
	next(LinkLost, first, 5, "")
	second.answer(9, pub{"k", 9, "v"})
	next(LinkFailedOver, second, 9, first.name())
	must(t, c.Close())
	if len(events) != 0 {
		t.Errorf("and then %+v", <-events)
	}
	text := log.String()
	for _, want := range []string{"following the server", "following the server again", "following another server"} {
		_, rest, found := strings.Cut(text, `"`+want+`"`)
		if !found {
			t.Errorf("%q is not there, or not in this order, in:\n%s", want, log.String())
		}
		text = rest
	}
}
