package link

import (
	"errors"
	"net"
	"net/netip"
	"testing"
)

// TestInterfaceAddress: every interface's name stands for one of its addresses.
func TestInterfaceAddress(t *testing.T) {
	t.Parallel()
	all, err := net.Interfaces()
	must(t, err)
	for _, ifc := range all {
		text := interfaceAddress(ifc.Name)
		addrs, _ := ifc.Addrs()
		if text == "" {
			if len(addrs) > 0 {
				t.Errorf("%s has no address among %v", ifc.Name, addrs)
			}
			continue
		}
		ip, err := netip.ParseAddr(text)
		must(t, err)
		found := false
		for _, a := range addrs {
			p, err := netip.ParsePrefix(a.String())
			found = found || err == nil && p.Addr() == ip.WithZone("")
		}
		if !found {
			t.Errorf("%s: %s is none of %v", ifc.Name, text, addrs)
		}
	}
	for _, name := range []string{"", "127.0.0.1", "::1", "no such interface"} {
		if got := interfaceAddress(name); got != "" {
			t.Errorf("%q is an interface with %s", name, got)
		}
	}
}

// TestSelfConnection: TCP lets a connection be its own other end; that is no
// peer.
func TestSelfConnection(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	address := l.Addr().String()
	e, err := Parse("tcp://"+address, false)
	must(t, err)
	nc, err := Dial(t.Context(), e, Options{})
	if err != nil {
		t.Errorf("an honest connection: %v", err)
	} else {
		nc.Close()
	}
	l.Close()
	// Dialling from a port to itself makes the connection that chance makes
	// now and then.
	if e, err = Parse("tcp://"+address+";"+address, false); err != nil {
		t.Fatal(err)
	}
	nc, err = Dial(t.Context(), e, Options{})
	switch {
	case err == nil:
		nc.Close()
		t.Error("not recognised")
	case !errors.Is(err, ErrSelf):
		t.Skipf("this system makes no such connections: %v", err)
	}
}
