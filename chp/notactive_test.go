package chp

import (
	"clustermap/internal/wake"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"
	"testing"

	"clustermap/sockets"
	"clustermap/zmtp"
)

// notActive returns the error of a WaitActive whose context has ended.
func notActive(t testing.TB, c *Client) *NotActiveError {
	t.Helper()
	err := c.WaitActive(wake.Ended)
	var e *NotActiveError
	if !errors.As(err, &e) || !errors.Is(err, context.Canceled) || len(e.Servers) != len(c.opts.Servers) {
		t.Fatalf("WaitActive returns %v", err)
	}
	return e
}

// WaitActive says of each server why the client does not follow it.
func TestNotActiveNamesEachServer(t *testing.T) {
	t.Parallel()
	five := startServer(t, ServerOptions{Model: 5})
	passive := newScripted(t, asOurs)
	answering := make(chan struct{})
	go func() {
		defer close(answering)
		for {
			m, err := passive.router.Recv(passive.ctx)
			if err != nil {
				return
			}
			_ = passive.router.Send(passive.ctx, m[0], []byte("STANDBY")) // the client may have gone
		}
	}()
	t.Cleanup(func() { passive.close(); <-answering })
	servers := []string{"tcp://127.0.0.1:1", five.Endpoints().Snapshot, passive.name()}
	c, err := NewClient(ClientOptions{Servers: servers, SyncTimeout: hang, HeartbeatTimeout: hang})
	must(t, err)
	defer c.Close()

	want := []error{syscall.ECONNREFUSED, ErrModel, ErrStandby}
	eventually(t, "each server has failed", func() bool {
		for i, s := range notActive(t, c).Servers {
			if !errors.Is(s.Err, want[i]) {
				return false
			}
		}
		return true
	})
	e := notActive(t, c)
	for i, s := range e.Servers {
		if s.Server != servers[i] || !errors.Is(e, want[i]) || !strings.Contains(e.Error(), s.String()) {
			t.Errorf("server %d is %q: %v", i, s.Server, e)
		}
	}
	if !errors.Is(e, ErrUnreachable) || strings.Count(e.Error(), "chp: ") != 1 {
		t.Errorf("%v", e)
	}
	// So do an update that waits, and its SetSync.
	for _, err := range []error{c.Set(wake.Ended, "k", []byte("v")), func() error { _, err := c.SetSync(wake.Ended, "k", []byte("v")); return err }()} {
		if !errors.As(err, &e) || !errors.Is(err, ErrStandby) {
			t.Errorf("an update returns %v", err)
		}
	}
}

// WaitActive says how far the present attempt has come.
func TestNotActiveTellsPhases(t *testing.T) {
	t.Parallel()
	s := newScripted(t, asPlain) // confirms subscriptions by HUGZ only
	c := followScripted(t, ClientOptions{}, s)
	phase := func(want Phase, text string) ServerFault {
		t.Helper()
		var f ServerFault
		eventually(t, want.String(), func() bool { f = notActive(t, c).Servers[0]; return f.Phase == want })
		if !strings.Contains(f.String(), text) {
			t.Errorf("phase %v: %s", want, f)
		}
		return f
	}
	if f := phase(PhaseSubscribing, "has sent nothing"); f.Err != nil || !f.Silent || !errors.Is(notActive(t, c), ErrSilent) {
		t.Errorf("the server has sent nothing: %+v", f)
	}
	s.subscribed("", 1)
	stop := s.beat(0)
	id, subtree := s.ask()
	if f := phase(PhaseSnapshot, "snapshot is not complete"); f.Err != nil || f.Silent {
		t.Errorf("nothing has failed yet: %+v", f)
	}
	stop()
	s.kthxbai(id, 0, subtree)
	must(t, c.WaitActive(testContext(t)))
	must(t, c.WaitActive(wake.Ended)) // although the context has ended
	s.close()
	eventually(t, "the connection is lost", func() bool { return c.State() != StateActive })
	eventually(t, "the server is gone", func() bool {
		e := c.WaitActive(wake.Ended)
		return errors.Is(e, ErrUnreachable) || errors.Is(e, ErrDisconnected)
	})
	for phase, want := range map[Phase]string{
		PhaseIdle: "idle", PhaseConnecting: "connecting", PhaseSubscribing: "subscribing", PhaseSnapshot: "snapshot", PhaseActive: "active", 9: "Phase(9)",
	} {
		if got := phase.String(); got != want {
			t.Errorf("phase %d is %q, want %q", phase, got, want)
		}
	}
}

func TestPermanentFaults(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err  error
		want bool
	}{
		{nil, false},
		{ErrStandby, false},
		{fmt.Errorf("%w: %w", ErrUnreachable, syscall.ECONNREFUSED), false},
		{fmt.Errorf("%w: %w", ErrUnreachable, zmtp.ErrMechanism), true},
		{fmt.Errorf("%w: %w", ErrUnreachable, sockets.ErrServerKey), true},
		{fmt.Errorf("%w: %w", ErrUnreachable, &net.DNSError{IsNotFound: true}), true},
		{fmt.Errorf("%w: %w", ErrUnreachable, &net.DNSError{IsTimeout: true}), false},
		{&ModelError{}, true},
	} {
		if got := (ServerFault{Err: c.err}).Permanent(); got != c.want {
			t.Errorf("%v: %v", c.err, got)
		}
	}
}
