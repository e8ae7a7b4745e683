package sockets

import (
	"bytes"
	"fmt"
	"sync"
	"testing"

	"clustermap/zmtp"
)

// seen collects the messages shown to an observer, as text: "<" for the backend.
type seen struct {
	sync.Mutex
	all    []string
	faults []string
}

func (s *seen) observe(o Observed) {
	s.Lock()
	defer s.Unlock()
	for i := range o.Len() {
		frames := o.AppendFrames(nil, i)
		wire := o.AppendWire([]byte("before"), i)
		want := zmtp.AppendMessage([]byte("before"), frames...)
		if !bytes.Equal(wire, want) || o.WireSize(i) != len(want)-len("before") {
			s.faults = append(s.faults, fmt.Sprintf("%q in wire form: %q, size %d", frames, wire, o.WireSize(i)))
		}
		text := ">"
		if o.FromBackend() {
			text = "<"
		}
		s.all = append(s.all, text+string(frames[len(frames)-1])+fmt.Sprint(len(frames)))
	}
}

func (s *seen) take(t *testing.T) []string {
	t.Helper()
	s.Lock()
	defer s.Unlock()
	for _, f := range s.faults {
		t.Error(f)
	}
	return s.all
}

// An observer is shown all messages of both directions before they are forwarded, with
// the identity that a ROUTER puts in front.
func TestProxyObserve(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	front, back := bind(t, NewRouter, Options{}), bind(t, NewDealer, Options{})
	var s seen
	running(t, newProxy(t, front, back, ProxyOptions{Observe: s.observe}))
	client, service := dialled(t, NewReq, Options{}, front.LastEndpoint()), dialled(t, NewRep, Options{}, back.LastEndpoint())
	var want []string
	for i := range 10 {
		text := fmt.Sprintf("question %d", i) + string(bytes.Repeat([]byte("?"), i*100)) // frames of both forms
		must(t, client.Send(ctx, []byte(text)))
		want = append(want, ">"+text+"3")
		m, err := service.Recv(ctx)
		must(t, err)
		if got := s.take(t); len(got) != len(want) || got[len(got)-1] != want[len(want)-1] {
			t.Fatalf("forwarded, and seen are %q", got)
		}
		must(t, service.Send(ctx, m[0], []byte("answer")))
		want = append(want, "<answer4")
		_, err = client.Recv(ctx)
		must(t, err)
	}
	if got := s.take(t); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("seen %q, want %q", got, want)
	}
}

// Messages that come one by one, and not in batches, are shown too.
func TestProxyObserveSingle(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	r := bind(t, NewRep, Options{})
	var s seen
	running(t, newProxy(t, r, r, ProxyOptions{Observe: s.observe}))
	client := dialled(t, NewReq, Options{}, r.LastEndpoint())
	for range 2 {
		must(t, client.Send(ctx, []byte("some"), make([]byte, 300)))
		_, err := client.Recv(ctx)
		must(t, err)
	}
	if got := s.take(t); len(got) != 2 || got[0][0] != '>' {
		t.Errorf("seen %q", got)
	}
}
