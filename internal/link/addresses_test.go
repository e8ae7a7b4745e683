package link

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// fakeNet is a network of addresses that answer after a time, refuse, or say nothing.
type fakeNet struct {
	names names

	mu     sync.Mutex
	tried  []string // in order
	closed int
}

// fakeConn counts that it was closed.
type fakeConn struct {
	net.Conn
	closed func()
}

func (c *fakeConn) Close() error { c.closed(); return nil }

// newFakeNet returns a network in which each name stands for the same addresses.
func newFakeNet(addresses ...string) *fakeNet {
	f := &fakeNet{}
	f.names.resolve = func(context.Context, string, string) (all []netip.Addr, err error) {
		for _, a := range addresses {
			all = append(all, netip.MustParseAddr(a))
		}
		return all, nil
	}
	return f
}

// dial connects to addresses that contain ".1." or ":1:" (at once) or ".2." (after a second), is
// refused by those with ".3.", and gets no answer from the others.
func (f *fakeNet) dial(ctx context.Context, _, address string) (net.Conn, error) {
	host, _, _ := net.SplitHostPort(address)
	f.mu.Lock()
	f.tried = append(f.tried, host)
	f.mu.Unlock()
	wait := time.Hour
	switch {
	case strings.Contains(host, ".1."), strings.Contains(host, ":1:"):
		wait = 0
	case strings.Contains(host, ".2."):
		wait = time.Second
	case strings.Contains(host, ".3."):
		return nil, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	}
	select {
	case <-time.After(wait):
		return &fakeConn{closed: func() { f.mu.Lock(); f.closed++; f.mu.Unlock() }}, nil
	case <-ctx.Done():
		return nil, &net.OpError{Op: "dial", Err: ctx.Err()}
	}
}

// triedSince returns and forgets which addresses were tried.
func (f *fakeNet) triedSince() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	defer func() { f.tried = nil }()
	return f.tried
}

// TestSilentAddressesDelayEachOther: each silent address costs a quarter of a second, and
// the next attempt begins with those that answer.
func TestSilentAddressesDelayEachOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFakeNet("10.9.0.1", "10.9.0.2", "10.9.0.3", "10.1.0.1")
		begun := time.Now()
		nc, err := f.names.dial(t.Context(), f.dial, "tcp", "name:1")
		must(t, err)
		must(t, nc.Close())
		if took := time.Since(begun); took != 3*attemptDelay {
			t.Errorf("connected after %v", took)
		}
		f.triedSince()
		_, err = f.names.dial(t.Context(), f.dial, "tcp", "name:1")
		must(t, err)
		if tried := f.triedSince(); !slices.Equal(tried, []string{"10.1.0.1"}) {
			t.Errorf("the next attempt tries %v", tried)
		}
		time.Sleep(historyTime) // in the bubble: the past is forgotten
		_, err = f.names.dial(t.Context(), f.dial, "tcp", "name:1")
		must(t, err)
		if tried := f.triedSince(); len(tried) != 4 || tried[0] != "10.9.0.1" {
			t.Errorf("much later an attempt tries %v", tried)
		}
	})
}

// TestRefusedAddressesCostNoTime: after a refusal the next address is tried at once.
func TestRefusedAddressesCostNoTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFakeNet("10.3.0.1", "10.3.0.2", "10.3.0.3", "10.1.0.1")
		begun := time.Now()
		_, err := f.names.dial(t.Context(), f.dial, "tcp", "name:1")
		must(t, err)
		if took := time.Since(begun); took != 0 {
			t.Errorf("connected after %v", took)
		}
		f = newFakeNet("10.3.0.1", "10.3.0.2")
		if _, err = f.names.dial(t.Context(), f.dial, "tcp", "name:1"); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("nobody listens: %v", err)
		}
	})
}

// TestAttemptsBeginWithOtherAddresses: an attempt that is too short for all addresses
// begins with those that the one before has not tried.
func TestAttemptsBeginWithOtherAddresses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFakeNet("10.9.0.1", "10.9.0.2", "10.9.0.3", "10.9.0.4", "10.1.0.1")
		limited := func() error {
			ctx, cancel := context.WithTimeout(t.Context(), 2*attemptDelay-time.Millisecond)
			defer cancel()
			_, err := f.names.dial(ctx, f.dial, "tcp", "name:1")
			return err
		}
		for _, want := range [][]string{{"10.9.0.1", "10.9.0.2"}, {"10.9.0.3", "10.9.0.4"}} {
			err := limited()
			if tried := f.triedSince(); err == nil || !slices.Equal(tried, want) {
				t.Errorf("tried %v: %v", tried, err)
			}
		}
		must(t, limited())
		// One that connects and then does not do as it should is no longer the first.
		f.triedSince()
		f.names.past.failed(netip.MustParseAddr("10.1.0.1"), time.Now())
		_ = limited()
		if tried := f.triedSince(); slices.Contains(tried, "10.1.0.1") {
			t.Errorf("tried %v", tried)
		}
	})
}

// TestLosersAreClosed: of two connections that are made, one is kept, and nothing goes on
// when the attempt is over.
func TestLosersAreClosed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFakeNet("10.2.0.1", "10.2.0.2", "10.2.0.3")
		nc, err := f.names.dial(t.Context(), func(ctx context.Context, network, address string) (net.Conn, error) {
			return f.dial(context.WithoutCancel(ctx), network, address) // as if each had just answered
		}, "tcp", "name:1")
		must(t, err)
		if f.closed != 2 {
			t.Errorf("%d connections were closed", f.closed)
		}
		must(t, nc.Close())
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(attemptDelay/2, cancel)
		if _, err := f.names.dial(ctx, f.dial, "tcp", "name:1"); !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled: %v", err)
		}
		if again := f.names.past.when; len(again) != 0 {
			t.Errorf("what was cancelled counts as failed: %v", again)
		}
	})
}

// TestFamiliesAlternate: addresses of both families are tried in turn (RFC 8305, section 4).
func TestFamiliesAlternate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFakeNet("2001:db8::1", "2001:db8::2", "2001:db8::3", "::ffff:10.9.0.1", "10.1.0.2")
		_, err := f.names.dial(t.Context(), f.dial, "tcp", "name:1")
		must(t, err)
		if want := []string{"2001:db8::1", "10.9.0.1", "2001:db8::2", "10.1.0.2"}; !slices.Equal(f.tried, want) {
			t.Errorf("tried %v", f.tried)
		}
	})
}

// TestSilenceAboutOneFamily: a DNS server that never answers for one family does not keep
// the addresses of the other from being tried, and one that answers late adds its own.
func TestSilenceAboutOneFamily(t *testing.T) {
	t.Parallel()
	type family struct {
		address string
		after   time.Duration // when the answer comes
	}
	never := family{after: time.Hour}
	for name, test := range map[string]struct {
		four, six family
		took      time.Duration
		tried     []string
	}{
		"A only":            {family{"10.1.0.1", 0}, never, familyDelay, []string{"10.1.0.1"}},
		"AAAA only":         {never, family{"2001:db8:1::1", 0}, familyDelay, []string{"2001:db8:1::1"}},
		"a late A":          {family{"10.1.0.1", time.Second}, family{"2001:db8::9", 0}, time.Second, []string{"2001:db8::9", "10.1.0.1"}},
		"a late AAAA":       {family{"10.3.0.1", 0}, family{"2001:db8:1::1", time.Second}, time.Second, []string{"10.3.0.1", "2001:db8:1::1"}},
		"both late":         {family{"10.1.0.1", time.Second}, family{"2001:db8::9", time.Second}, time.Second + attemptDelay, []string{"2001:db8::9", "10.1.0.1"}},
		"no A":              {family{"", 0}, family{"2001:db8:1::1", time.Second}, time.Second, []string{"2001:db8:1::1"}},
		"neither":           {never, never, time.Minute, nil},
		"no A, and silence": {family{"", 0}, never, time.Minute, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := newFakeNet()
				f.names.resolve = func(ctx context.Context, network, host string) (all []netip.Addr, err error) {
					asked := time.Now() // both at the same time
					for _, x := range []struct {
						network string
						family
					}{{"ip6", test.six}, {"ip4", test.four}} {
						if network != "ip" && network != x.network {
							continue
						}
						select {
						case <-time.After(time.Until(asked.Add(x.after))):
						case <-ctx.Done():
							return nil, &net.DNSError{Err: "i/o timeout", Name: host, IsTimeout: true}
						}
						if x.address != "" {
							all = append(all, netip.MustParseAddr(x.address))
						}
					}
					if len(all) == 0 {
						err = &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
					}
					return all, err
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				begun := time.Now()
				_, err := f.names.dial(ctx, f.dial, "tcp", "name:1")
				var timeout *net.DNSError
				if (err == nil) != (test.took < time.Minute) || err != nil && !(errors.As(err, &timeout) && timeout.IsTimeout) {
					t.Errorf("connecting failed with %v", err)
				}
				if took := time.Since(begun); took != test.took {
					t.Errorf("it took %v, want %v", took, test.took)
				}
				if !slices.Equal(f.tried, test.tried) {
					t.Errorf("tried %v, want %v", f.tried, test.tried)
				}
			})
		})
	}
}

// TestHostHasOneAddress: all connections of a host reach the address of the first one.
func TestHostHasOneAddress(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFakeNet("10.9.0.1", "10.1.0.1", "10.1.0.2")
		h := NewHost(nil)
		h.names = &f.names
		var all sync.WaitGroup
		for _, address := range []string{"name:1", "name:2", "name:3"} {
			all.Go(func() {
				_, err := h.dial(t.Context(), f.dial, "tcp", address)
				must(t, err)
			})
		}
		all.Wait()
		if want := []string{"10.9.0.1", "10.1.0.1", "10.1.0.1", "10.1.0.1"}; !slices.Equal(f.tried, want) {
			t.Errorf("tried %v", f.tried)
		}
		// Another one, while this one is under way, begins elsewhere.
		f.triedSince()
		h = NewHost([]netip.Addr{h.At()})
		h.names = &f.names
		_, err := h.dial(t.Context(), f.dial, "tcp", "name:1")
		must(t, err)
		if want := []string{"10.1.0.2"}; !slices.Equal(f.tried, want) {
			t.Errorf("tried %v", f.tried)
		}
		h.Failed()
		h = NewHost(nil)
		h.names = &f.names
		f.triedSince()
		_, err = h.dial(t.Context(), f.dial, "tcp", "name:1")
		must(t, err)
		if want := []string{"10.1.0.1"}; !slices.Equal(f.tried, want) {
			t.Errorf("tried %v", f.tried)
		}
	})
}

// TestAddressThatIsAddedIsTried: a name gets another address while an attempt is under way at
// the first one, which is of no use. The next attempt begins with the new one, although it
// comes first now.
func TestAddressThatIsAddedIsTried(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFakeNet("10.1.0.1")
		dial := func(avoid ...netip.Addr) *Host {
			t.Helper()
			f.triedSince()
			h := NewHost(avoid)
			h.names = &f.names
			_, err := h.dial(t.Context(), f.dial, "tcp", "name:1")
			must(t, err)
			return h
		}
		first := dial()
		first.Failed() // it does not complete the handshake
		second := dial(first.At())
		if want := []string{"10.1.0.1"}; !slices.Equal(f.tried, want) {
			t.Errorf("tried %v", f.tried)
		}
		f.names.resolve = newFakeNet("10.1.0.1", "10.1.0.2").names.resolve
		third := dial(second.At())
		if want := []string{"10.1.0.2"}; !slices.Equal(f.tried, want) || third.At().String() != want[0] {
			t.Errorf("tried %v, at %v", f.tried, third.At())
		}
	})
}

// TestHistoryIsBounded: what is known of addresses does not grow with their number.
func TestHistoryIsBounded(t *testing.T) {
	t.Parallel()
	var h history
	a, now := netip.MustParseAddr("10.0.0.1"), time.Now()
	for range 2 * historySize {
		h.failed(a, now)
		a = a.Next()
	}
	if len(h.when) > historySize {
		t.Errorf("%d addresses", len(h.when))
	}
	if _, ok := h.when[a.Prev()]; !ok {
		t.Error("the newest one is forgotten")
	}
	h.worked(a.Prev())
	if !h.lately(a.Prev(), now).IsZero() {
		t.Error("an address that works counts as failed")
	}
}
