package chp

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"clustermap/chp/internal/state"
	"clustermap/patterns/binarystar"
	"clustermap/sockets"
	"clustermap/zmtp"
)

// TestSilentServerPingsClients: an active server that hears nobody asks its clients, which
// may only be waiting for their updates; it need not suspect for long that it was cut off.
func TestSilentServerPingsClients(t *testing.T) {
	t.Parallel()
	po, bo := pairOptions(t)
	other, err := sockets.NewPub(sockets.Options{Linger: sockets.LingerNone, Metadata: map[string]string{"X-BSTAR": "1"}})
	must(t, err)
	defer other.Close()
	must(t, other.Bind(testContext(t), po.Pair.PeerState))
	s := startAlone(t, po)
	c := pairClient(t, po, bo)
	must(t, c.WaitActive(testContext(t)))
	must(t, c.Close())
	waits, err := net.Dial("tcp", strings.TrimPrefix(s.Endpoints().Snapshot, "tcp://"))
	must(t, err)
	defer waits.Close()
	must(t, waits.SetDeadline(time.Now().Add(hang)))
	ready := zmtp.AppendCommand(nil, "READY", zmtp.AppendProperty(nil, "Socket-Type", []byte("DEALER")))
	_, err = waits.Write(append(zmtp.AppendGreeting(nil, zmtp.Greeting{Major: 3, Minor: 1, Mechanism: "NULL"}), ready...))
	must(t, err)
	eventually(t, "the other server is heard for the last time", func() bool {
		m := append([]byte{'B', 1, byte(binarystar.StatePassive), byte(binarystar.RoleBackup), 11: 1}, make([]byte, state.ReignSize)...)
		m = binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(m, 1), 0) // its run, and of whom it has a copy
		_ = other.Send(testContext(t), m)
		return s.pair.Node().Peer().State == binarystar.StatePassive
	})
	var got []byte
	for b := make([]byte, 1000); !bytes.Contains(got, []byte("\x04PING")); {
		n, err := waits.Read(b)
		must(t, err)
		got = append(got, b[:n]...)
	}
}

// TestIsolationDoesNotKeepKeys: keys expire also while a server holds the updates of clients.
func TestIsolationDoesNotKeepKeys(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s := startServer(t, ServerOptions{ExpiryGrace: -1})
	must(t, s.Set(ctx, "/k", []byte("v"), WithTTL(50*time.Millisecond)))
	s.sequencer.Hold(true)
	eventually(t, "the key is gone", func() bool { return s.Len() == 0 })
	soon, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
	defer cancel()
	if err := s.Set(soon, "/k", []byte("v")); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("an update is accepted: %v", err)
	}
}
