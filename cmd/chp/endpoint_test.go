package main

import (
	"net"
	"strings"
	"testing"
)

// TestServersWithZones: a command takes an address with a zone, as a server prints it and
// writes it to its ready file.
func TestServersWithZones(t *testing.T) {
	t.Parallel()
	for _, s := range []string{"tcp://[fe80::1%eth0]:5556", "tcp://[::1]:5556", "[fe80::1%eth0]:5556", "tcp://[fe80::1%25eth0]:5556"} {
		if err := checkServers(complete([]string{s})); err != nil {
			t.Errorf("%s: %v", s, err)
		}
	}
	if l, err := net.Listen("tcp", "[::1%lo]:0"); err != nil {
		t.Logf("no IPv6 loopback address with a zone: %v", err)
	} else {
		l.Close()
		s := start(t, "serve", "--port", "0", "--host", "::1%lo")
		must(t, "set", "k", "v", "--server", s.ready())
	}
}

// TestServersWithoutTransport: HOST:PORT stands for tcp://HOST:PORT, wherever a command
// takes an endpoint.
func TestServersWithoutTransport(t *testing.T) {
	t.Parallel()
	hosts := []string{"127.0.0.1:0"}
	if l, err := net.Listen("tcp", "[::1]:0"); err == nil {
		l.Close()
		hosts = append(hosts, "[::1]:0")
	}
	for _, host := range hosts {
		s := start(t, "serve", "--endpoint", host)
		endpoint := s.ready()
		short := strings.TrimPrefix(endpoint, "tcp://")
		must(t, "set", "k", "v", "--server", short)
		if got := must(t, "get", "k", "--server", endpoint); got != "v\n" {
			t.Errorf("%s: %q", host, got)
		}
	}
}

// The reason for which a text names no server is one fault, without advice that does not
// hold for a command: HOST:PORT needs no transport, and inproc reaches no other process.
func TestWhyATextNamesNoServer(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"127.0.0.1":            "it has no port; want",
		"tcp://127.0.0.1":      "it has no port; want",
		"127.0.0.1:0":          "it has port 0, which is for Bind; want",
		"http://127.0.0.1:80":  `it has the transport "http", which is not supported; want`,
		"inproc://x":           "is not a server; want",
		"ipc://":               "it has no path; want",
		"tcp://127.0.0.1:none": "; want",
	} {
		err := checkServers(complete([]string{text}))
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "inproc://name") {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}
