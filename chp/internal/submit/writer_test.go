package submit

import (
	"context"
	"testing"
	"testing/synctest"

	"clustermap/internal/buf"
	"clustermap/internal/kvmsg"
)

// fakeServer is a session and an uplink that notes what is sent.
type fakeServer struct {
	opened int
	sent   []kvmsg.Record
	failed error
	over   chan struct{}
}

func (f *fakeServer) Open() (Uplink, error) {
	f.opened++
	return f, nil
}
func (f *fakeServer) Fail(err error)        { f.failed = err }
func (f *fakeServer) Over() <-chan struct{} { return f.over }
func (f *fakeServer) Ready() error          { return nil }
func (f *fakeServer) GiveUp()               {}

func (f *fakeServer) Leave(done <-chan struct{}) { <-done }

func (f *fakeServer) Send(wire []byte, messages int, _ *buf.Chunk) error {
	for rest := kvmsg.Record(append([]byte(nil), wire...)); len(rest) > 0; rest = rest[rest.Size():] {
		f.sent = append(f.sent, rest[:rest.Size()])
	}
	return nil
}

func newWriter() *Writer {
	return New(Options{
		SendQueue: 1 << 20, MaxValue: 1 << 20,
		Foreign:  func([]byte) bool { return false },
		Sequence: func() int64 { return 0 },
		Wait:     func(context.Context) error { return context.DeadlineExceeded },
	})
}

// A session that becomes ACTIVE while Close waits for the writer gets no updates: Close
// bounds its wait only for the session that it found.
func TestNoServerAfterClose(t *testing.T) {
	t.Parallel()
	w := newWriter()
	w.add(1, 1)
	w.Close()
	w.Begin(&Server{Uplink: &fakeServer{}})
	defer w.clear()
	if s := w.next(); s != nil {
		t.Error("a closed writer would send to a new session")
	}
}

// A server of another implementation gets no numbers, and a time to live of 0.
func TestUpdatesForServersOfOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, w := &fakeServer{}, newWriter()
		w.Begin(&Server{Session: f})
		for _, value := range []string{"v", ""} {
			if err := w.Put(t.Context(), []byte("/k"), []byte(value), nil, nil); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if len(f.sent) != 2 || f.sent[0].Seq() != 0 || string(f.sent[0].Props()) != "ttl=0\n" || len(f.sent[1].Props()) != 0 {
			t.Errorf("sent %q", f.sent)
		}
		w.Close()
	})
}
