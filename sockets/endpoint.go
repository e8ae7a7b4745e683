package sockets

import (
	"net"
	"strconv"
	"strings"
)

// endpoint is a parsed "tcp://host:port".
type endpoint struct {
	text string // as the application wrote it
	host string // "" means all interfaces (bind only)
	port int    // 0 means a port of the system's choice (bind only)
}

func (e endpoint) address() string { return net.JoinHostPort(e.host, strconv.Itoa(e.port)) }

// parseEndpoint reads an endpoint. The wildcards "*" for host and port, and
// port 0, are for bind only.
func parseEndpoint(text string, bind bool) (endpoint, error) {
	fail := func(reason string) (endpoint, error) {
		return endpoint{}, &EndpointError{text, reason}
	}
	scheme, rest, ok := strings.Cut(text, "://")
	if !ok {
		return fail("has no transport; write it as tcp://host:port")
	}
	if scheme != "tcp" {
		return fail("transport " + strconv.Quote(scheme) + " is not supported; use tcp")
	}
	colon := strings.LastIndexByte(rest, ':')
	if colon < 0 {
		return fail("has no port; write it as tcp://host:port")
	}
	host, port := rest[:colon], rest[colon+1:]
	if strings.HasPrefix(host, "[") {
		if !strings.HasSuffix(host, "]") {
			return fail("has an unclosed [ in its host")
		}
		host = host[1 : len(host)-1]
	} else if strings.Contains(host, ":") {
		return fail("needs its IPv6 address in brackets: tcp://[::1]:5555")
	}
	e := endpoint{text: text, host: host}
	switch {
	case host == "":
		return fail("has no host")
	case host == "*" && !bind:
		return fail("the wildcard host is for Bind; name a host to connect to")
	case host == "*":
		e.host = ""
	case strings.ContainsAny(host, "/ \x00"):
		return fail("has a character in its host that cannot be there")
	}
	if port == "*" && bind {
		return e, nil
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return fail("port must be a number from 1 to 65535")
	}
	if n == 0 && !bind {
		return fail("port 0 is for Bind; name a port to connect to")
	}
	e.port = int(n)
	return e, nil
}
