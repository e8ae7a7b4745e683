package sockets

import (
	"slices"
	"strconv"
	"testing"

	"clustermap/internal/testenv"
)

// TestNameWithSilentAddresses: a socket finds its peer behind a name of which the first
// addresses say nothing.
func TestNameWithSilentAddresses(t *testing.T) {
	t.Parallel()
	port := testenv.FreePort(t)
	at := ":" + strconv.Itoa(port)
	silent := []string{"127.0.0.2", "127.0.0.3", "127.0.0.4", "127.0.0.5", "127.0.0.6", "127.0.0.7", "127.0.0.8"}
	testenv.Silent(t, port, silent...)
	pull := open(t, NewPull, Options{})
	must(t, pull.Bind(testContext(t), "tcp://127.0.0.1"+at))
	name := testenv.NewName(t, func() []string { return append(slices.Clip(silent), "127.0.0.1") })
	push := open(t, NewPush, Options{})
	must(t, push.Connect("tcp://"+name+at))
	must(t, push.Send(testContext(t), []byte("found")))
	_, err := pull.Recv(testContext(t))
	must(t, err)
}

// TestConnectTimeoutHasADefault: an attempt to connect to an address that says nothing is
// bounded, so that the next one can find the peer elsewhere.
func TestConnectTimeoutHasADefault(t *testing.T) {
	t.Parallel()
	push := open(t, NewPush, Options{})
	if limit := push.opts().ConnectTimeout; limit != DefaultConnectTimeout {
		t.Errorf("an attempt may take %v", limit)
	}
}
