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
		if got != TypeUnknown {
			t.Errorf("%q: %v", name, got)
		}
		wantError(t, err, ErrIncompatible)
	}
	if TypeUnknown.String() != "UNKNOWN" || SocketType(12).String() != "UNKNOWN" {
		t.Error(TypeUnknown, SocketType(12))
	}
}

func TestCompatible(t *testing.T) {
	t.Parallel()
	// The table of RFC 37.
	peers := map[SocketType]string{
		TypeReq: "REP ROUTER", TypeRep: "REQ DEALER", TypeDealer: "REP DEALER ROUTER", TypeRouter: "REQ DEALER ROUTER",
		TypePub: "SUB XSUB", TypeXPub: "SUB XSUB", TypeSub: "PUB XPUB", TypeXSub: "PUB XPUB",
		TypePush: "PULL", TypePull: "PUSH", TypePair: "PAIR",
	}
	for a := TypePair; a <= TypeXSub; a++ {
		for b := TypePair; b <= TypeXSub; b++ {
			want := strings.Contains(" "+peers[a]+" ", " "+b.String()+" ")
			if Compatible(a, b) != want || Compatible(b, a) != want {
				t.Errorf("%v %v: want %v", a, b, want)
			}
		}
		if Compatible(a, TypeUnknown) || Compatible(TypeUnknown, a) || Compatible(a, TypeXSub+1) {
			t.Errorf("%v is compatible with a type that does not exist", a)
		}
	}
}
