package chp

import (
	"errors"
	"strings"
	"testing"
	"time"

	"clustermap/chp/internal/follow"
	"clustermap/sockets"
	"clustermap/zmtp"
)

func TestClientOptionsDefaults(t *testing.T) {
	t.Parallel()
	given := ClientOptions{Servers: []string{"tcp://127.0.0.1:5556", "tcp://[::1]:7000"}}
	o, servers, err := given.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	if o.HeartbeatTimeout != 5*time.Second || o.SyncTimeout != 5*time.Second || o.WatchQueue != 64<<20 ||
		o.SendQueue != 4<<20 || o.MaxValueSize != 16<<20 || o.Logger == nil {
		t.Errorf("defaults are %+v", o)
	}
	want := []follow.Address{
		{Name: "tcp://127.0.0.1:5556", Snapshot: "tcp://127.0.0.1:5556", Publisher: "tcp://127.0.0.1:5557", Collector: "tcp://127.0.0.1:5558"},
		{Name: "tcp://[::1]:7000", Snapshot: "tcp://[::1]:7000", Publisher: "tcp://[::1]:7001", Collector: "tcp://[::1]:7002"},
	}
	for i, server := range servers {
		if server != want[i] {
			t.Errorf("server %d is %+v, want %+v", i, server, want[i])
		}
	}
}

func TestClientOptionsReportAllFaults(t *testing.T) {
	t.Parallel()
	_, err := NewClient(ClientOptions{
		Servers:      []string{"tcp://a:1", "tcp://a:1", "udp://x:1", "tcp://a:65534", "tcp://a", "tcp://:1", "tcp://*:1", "tcp://a b:1"},
		Subtrees:     []string{"/a/", "a/"},
		SyncTimeout:  -1,
		WatchQueue:   -1,
		SendQueue:    -1,
		MaxValueSize: -1,
	})
	fields := map[string]int{}
	var joined interface{ Unwrap() []error }
	if !errors.As(err, &joined) {
		t.Fatalf("error is %v", err)
	}
	for _, fault := range joined.Unwrap() {
		var o *OptionError
		if !errors.As(fault, &o) {
			t.Errorf("%v is no *OptionError", fault)
			continue
		}
		fields[o.Field]++
	}
	for field, want := range map[string]int{
		"Servers": 7, "Subtrees": 1, "SyncTimeout": 1, "WatchQueue": 1, "SendQueue": 1, "MaxValueSize": 1,
	} {
		if fields[field] != want {
			t.Errorf("%d faults of %s, want %d: %v", fields[field], field, want, err)
		}
	}
	if _, err := NewClient(ClientOptions{}); err == nil {
		t.Error("a client without servers was made")
	}
	for _, spec := range []string{"/", "a/"} {
		_, err := NewClient(ClientOptions{Servers: []string{"tcp://127.0.0.1:1"}, Subtrees: []string{spec}})
		if err == nil || strings.Count(err.Error(), "chp: ") != 1 {
			t.Errorf("NewClient with the subtree %q: %v", spec, err)
		}
	}
}

// Security of the wrong role would wait for ever for a peer of the same role.
func TestSecurityOfTheWrongRole(t *testing.T) {
	t.Parallel()
	key := zmtp.GenerateKeyPair()
	isOption := func(err error) bool {
		var o *OptionError
		return errors.As(err, &o)
	}
	for _, security := range []sockets.Security{
		{CurveServer: true, CurveSecretKey: key.Secret},
		{PlainServer: true},
	} {
		if c, err := NewClient(ClientOptions{Servers: []string{"tcp://127.0.0.1:1"}, Security: security}); !isOption(err) {
			t.Errorf("a client with %v: %v", security, err)
			if err == nil {
				c.Close()
			}
		}
	}
	for _, security := range []sockets.Security{
		{CurveSecretKey: key.Secret, CurveServerKey: key.Public},
		{PlainUsername: "user", PlainPassword: "password"},
	} {
		if s, err := NewServer(ServerOptions{Security: security, Logger: quiet()}); !isOption(err) {
			t.Errorf("a server with %v: %v", security, err)
			if err == nil {
				s.Close()
			}
		}
	}
}
