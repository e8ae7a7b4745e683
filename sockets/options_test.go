package sockets

import (
	"bytes"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"clustermap/internal/engine"
)

func TestOptionDefaults(t *testing.T) {
	t.Parallel()
	o, err := Options{}.withDefaults()
	must(t, err)
	if o.SendHWM != DefaultHWM || o.RecvHWM != DefaultHWM ||
		o.SendHWMBytes != DefaultHWMBytes || o.RecvHWMBytes != DefaultHWMBytes ||
		o.Linger != 0 || o.ReconnectInterval != DefaultReconnectInterval ||
		o.HandshakeTimeout != DefaultHandshakeTimeout || o.BusyPoll != DefaultBusyPoll || o.MaxHandshakes != DefaultMaxHandshakes ||
		o.MaxMessageSize != DefaultMaxMessageSize || o.MaxSubscriptions != DefaultMaxSubscriptions {
		t.Errorf("%+v", o)
	}
	o, err = Options{SendHWM: -1, RecvHWM: -1, SendHWMBytes: -1, RecvHWMBytes: -1, MaxMessageSize: -1, Linger: LingerNone, ReconnectInterval: -1}.withDefaults()
	must(t, err)
	if o.SendHWM != unbounded || o.RecvHWM != unbounded || o.SendHWMBytes != unbounded ||
		o.RecvHWMBytes != unbounded || o.MaxMessageSize != engine.MaxMessage || o.Linger != LingerNone || o.ReconnectInterval != -1 {
		t.Errorf("%+v", o)
	}
	o, err = Options{SendHWM: 1, RecvHWM: 2, SendHWMBytes: 3, RecvHWMBytes: 4, MaxMessageSize: 5, MaxHandshakes: 6, MaxSubscriptions: 7}.withDefaults()
	must(t, err)
	if o.SendHWM != 1 || o.RecvHWM != 2 || o.SendHWMBytes != 3 || o.RecvHWMBytes != 4 || o.MaxMessageSize != 5 || o.MaxHandshakes != 6 || o.MaxSubscriptions != 7 {
		t.Errorf("%+v", o)
	}
}

func TestOptionErrors(t *testing.T) {
	t.Parallel()
	long := make([]byte, 256)
	long[0] = 1
	for _, c := range []struct {
		o    Options
		want string // fields complained about
	}{
		{Options{Identity: long[:255]}, ""},
		{Options{Identity: long}, "Identity"},
		{Options{Identity: []byte{0, 1}}, "Identity"},
		{Options{Metadata: map[string]string{"X-A": "", "X-b.c_d+e-9": "\x00"}}, ""},
		{Options{Metadata: map[string]string{"Y-A": ""}}, "Metadata"},
		{Options{Metadata: map[string]string{"x-a": ""}}, "Metadata"},
		{Options{Metadata: map[string]string{"X-": ""}}, "Metadata"},
		{Options{Metadata: map[string]string{"X-a b": ""}}, "Metadata"},
		{Options{Metadata: map[string]string{"X-" + strings.Repeat("a", 253): ""}}, ""},
		{Options{Metadata: map[string]string{"X-" + strings.Repeat("a", 254): ""}}, "Metadata"},
		{Options{Metadata: map[string]string{"X-A": strings.Repeat("v", maxMetadata)}}, "Metadata"},
		{Options{FullPolicy: PolicyDisconnect + 1}, "FullPolicy"},
		{Options{SendBuffer: -1}, "SendBuffer"},
		{Options{Notify: NotifyConnect | NotifyDisconnect}, ""},
		{Options{Notify: NotifyNone}, ""},
		{Options{Notify: NotifyNone | NotifyConnect}, "Notify"},
		{Options{RecvBuffer: -1}, "RecvBuffer"},
		{Options{MaxHandshakes: -1}, "MaxHandshakes"},
		{Options{MaxSubscriptions: -1}, "MaxSubscriptions"},
		{Options{HandshakeTimeout: -1}, "HandshakeTimeout"},
		{Options{ReconnectIntervalMax: -1}, "ReconnectIntervalMax"},
		{Options{ReconnectInterval: time.Second, ReconnectIntervalMax: time.Millisecond}, "ReconnectIntervalMax"},
		{Options{ReconnectIntervalMax: time.Millisecond}, "ReconnectIntervalMax"}, // below the default interval
		{Options{ReconnectInterval: -1, ReconnectIntervalMax: time.Millisecond}, ""},
		{Options{Identity: long, FullPolicy: 9, MaxHandshakes: -1}, "FullPolicy Identity MaxHandshakes"},
	} {
		s, err := NewRouter(c.o)
		fields := map[string]bool{}
		for _, e := range unjoined(err) {
			var typed *OptionError
			if !errors.As(e, &typed) || typed.Reason == "" {
				t.Errorf("%+v: %v", c.o, e)
				continue
			}
			fields[typed.Field] = true
		}
		if got := strings.Join(slices.Sorted(maps.Keys(fields)), " "); got != c.want {
			t.Errorf("%+v: complaints about %q, want %q", c.o, got, c.want)
		}
		if err == nil {
			s.Close()
		}
	}
}

func unjoined(err error) []error {
	if j, ok := err.(interface{ Unwrap() []error }); ok {
		return j.Unwrap()
	}
	if err != nil {
		return []error{err}
	}
	return nil
}

// TestOptionsAreCopied: the caller's later changes change no socket.
func TestOptionsAreCopied(t *testing.T) {
	t.Parallel()
	o := Options{Identity: []byte("mine"), Metadata: map[string]string{"X-A": "1"}}
	s := open(t, NewDealer, o)
	o.Identity[0] = 'X'
	o.Metadata["X-A"] = "2"
	if !bytes.Equal(s.opts().Identity, []byte("mine")) || s.opts().Metadata["X-A"] != "1" {
		t.Errorf("%q %v", s.opts().Identity, s.opts().Metadata)
	}
}

// TestMetadata: each side can read the properties that the other one announces.
func TestMetadata(t *testing.T) {
	t.Parallel()
	seen := newEvents()
	router := bind(t, NewRouter, Options{Monitor: seen.Tell})
	dealer := open(t, NewDealer, Options{Metadata: map[string]string{"X-One": "1", "X-Two": strings.Repeat("2", 5000)}})
	must(t, dealer.Connect(router.LastEndpoint()))
	peer := seen.Await(t, EventHandshakeSucceeded).Peer
	one, _ := peer.Property("X-One")
	two, _ := peer.Property("x-two")
	three, ok := peer.Property("X-Three")
	if one != "1" || two != strings.Repeat("2", 5000) || three != "" || ok {
		t.Errorf("%q %q %q %v", one, two, three, ok)
	}
	if peer.SocketType() != "DEALER" || peer.RemoteAddr() == "" {
		t.Errorf("%q %q", peer.SocketType(), peer.RemoteAddr())
	}
}

func TestPolicyString(t *testing.T) {
	t.Parallel()
	for p, want := range map[Policy]string{PolicyDrop: "drop", PolicyBlock: "block", PolicyDisconnect: "disconnect", 7: "Policy(7)"} {
		if p.String() != want {
			t.Errorf("%q, want %q", p, want)
		}
	}
}
