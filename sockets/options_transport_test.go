package sockets

import (
	"errors"
	"strings"
	"testing"
	"time"
)

// TestTransportOptions: every fault is found, all at once, and valid values pass.
func TestTransportOptions(t *testing.T) {
	t.Parallel()
	_, err := NewDealer(Options{
		ConnectTimeout: -1, ReconnectStop: 16, Backlog: -1, TOS: 256, KeepAlive: 2,
		BindToDevice: strings.Repeat("x", 16), SOCKSProxy: "nowhere", SOCKSUser: strings.Repeat("x", 256),
	})
	for _, field := range []string{
		"ConnectTimeout", "ReconnectStop", "Backlog", "TOS", "KeepAlive", "BindToDevice", "SOCKSProxy", "SOCKSUser",
	} {
		if err == nil || !strings.Contains(err.Error(), "option "+field+":") {
			t.Errorf("%s passes: %v", field, err)
		}
	}
	for _, o := range []Options{
		{SOCKSProxy: "host:0"}, {SOCKSProxy: ":1080"}, {SOCKSProxy: "tcp://host:1080"}, {SOCKSPassword: "x"}, {TOS: -1},
	} {
		var typed *OptionError
		if _, err := NewDealer(o); !errors.As(err, &typed) {
			t.Errorf("%+v: %v", o, err)
		}
	}
	o := Options{
		ConnectTimeout: time.Second, ReconnectStop: allReconnectStops, Backlog: 1,
		KeepAlive: KeepAliveOff, KeepAliveIdle: -1, SOCKSProxy: "[::1]:1080", SOCKSUser: "x", SOCKSPassword: "y",
	}
	open(t, NewDealer, o)
}
