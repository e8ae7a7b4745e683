package zmtp

import (
	"strings"
	"testing"
)

func TestSocketTypeNames(t *testing.T) {
	t.Parallel()
	for number, name := range strings.Fields("PAIR PUB SUB REQ REP DEALER ROUTER PULL PUSH XPUB XSUB") {
		got, err := ParseSocketType([]byte(name))
		if err != nil || int(got) != number || got.String() != name {
			t.Errorf("%s: %d %v %v", name, got, got, err)
		}
	}
	for _, name := range []string{"", "dealer", "DEALER ", "UNKNOWN", "CLIENT", "PU"} {
		got, err := ParseSocketType([]byte(name))
		if got != UNKNOWN {
			t.Errorf("%q: %v", name, got)
		}
		wantError(t, err, ErrIncompatible)
	}
	if UNKNOWN.String() != "UNKNOWN" || SocketType(11).String() != "UNKNOWN" {
		t.Error(UNKNOWN, SocketType(11))
	}
}

func TestCompatible(t *testing.T) {
	t.Parallel()
	// The table of RFC 37.
	peers := map[SocketType]string{
		REQ: "REP ROUTER", REP: "REQ DEALER", DEALER: "REP DEALER ROUTER", ROUTER: "REQ DEALER ROUTER",
		PUB: "SUB XSUB", XPUB: "SUB XSUB", SUB: "PUB XPUB", XSUB: "PUB XPUB",
		PUSH: "PULL", PULL: "PUSH", PAIR: "PAIR",
	}
	for a := PAIR; a <= XSUB; a++ {
		for b := PAIR; b <= XSUB; b++ {
			want := strings.Contains(" "+peers[a]+" ", " "+b.String()+" ")
			if Compatible(a, b) != want || Compatible(b, a) != want {
				t.Errorf("%v %v: want %v", a, b, want)
			}
		}
		if Compatible(a, UNKNOWN) || Compatible(UNKNOWN, a) || Compatible(a, XSUB+1) {
			t.Errorf("%v is compatible with a type that does not exist", a)
		}
	}
}
