package chp

import (
	"errors"
	"net"
	"strconv"
	"strings"
	"testing"
)

// TestPairListenBindsAllOrNone: if the state endpoint is taken, the three ports are free
// again, and Listen can be called once more.
func TestPairListenBindsAllOrNone(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	o, _ := pairOptions(t)
	taken, err := net.Listen("tcp", strings.TrimPrefix(o.Pair.State, "tcp://"))
	must(t, err)
	s, err := NewServer(o)
	must(t, err)
	defer func() { must(t, s.Close()) }()
	var refused *ListenError
	if err := s.Listen(ctx); !errors.As(err, &refused) || refused.Endpoint != o.Pair.State {
		t.Fatalf("Listen: %v", err)
	}
	for port := o.Port; port <= o.Port+2; port++ {
		l, err := net.Listen("tcp", net.JoinHostPort(o.Host, strconv.Itoa(port)))
		if err != nil {
			t.Errorf("a port is still bound: %v", err)
			continue
		}
		must(t, l.Close())
	}
	must(t, taken.Close())
	must(t, s.Listen(ctx))
}
