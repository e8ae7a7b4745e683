package sockets

import (
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"strconv"
	"strings"
	"syscall"
)

// Transports of an endpoint.
const (
	transportTCP    = "tcp"
	transportIPC    = "ipc"
	transportInproc = "inproc"
)

// maxInprocName bounds an inproc name, as libzmq does.
const maxInprocName = 256

// endpoint is a parsed endpoint.
type endpoint struct {
	text      string // as the application wrote it
	transport string

	// tcp
	host   string // "" means all interfaces (bind, and source)
	port   int    // 0 means a port of the system's choice (bind, and source)
	source *endpoint

	// name is of ipc: the path, @name for an abstract one, or "" for one of
	// the system's choice (bind only); or of inproc.
	name string
}

// address is host and port as package net takes them.
func (e endpoint) address() string { return net.JoinHostPort(e.host, strconv.Itoa(e.port)) }

// abstract says that an ipc endpoint is a name in Linux's abstract namespace.
func (e endpoint) abstract() bool { return strings.HasPrefix(e.name, "@") }

// parseEndpoint reads an endpoint. The wildcards "*" for host, port and path,
// and port 0, are for bind only; so a source address is for connect.
func parseEndpoint(text string, bind bool) (endpoint, error) {
	e := endpoint{text: text}
	scheme, rest, ok := strings.Cut(text, "://")
	var reason string
	var cause error
	switch {
	case !ok:
		reason = "has no transport; write it as tcp://host:port, ipc://path or inproc://name"
	case scheme == transportTCP:
		reason = e.parseTCP(rest, bind)
	case scheme == transportIPC:
		reason, cause = e.parseIPC(rest, bind)
	case scheme == transportInproc:
		reason = e.parseInproc(rest)
	default:
		reason = "transport " + strconv.Quote(scheme) + " is not supported; use tcp, ipc or inproc"
	}
	if reason != "" {
		return endpoint{}, &EndpointError{Endpoint: text, Reason: reason, Err: cause}
	}
	e.transport = scheme
	return e, nil
}

// parseTCP reads host:port, or source;host:port, and returns what is wrong.
func (e *endpoint) parseTCP(text string, bind bool) (wrong string) {
	if source, rest, ok := strings.Cut(text, ";"); ok {
		if bind {
			return "has a source address, which is for Connect"
		}
		e.source = &endpoint{text: e.text, transport: transportTCP}
		if wrong := e.source.parseTCP(source, true); wrong != "" {
			return "source " + wrong
		}
		text = rest
	}
	colon := strings.LastIndexByte(text, ':')
	if colon < 0 {
		return "has no port; write it as tcp://host:port"
	}
	host, port := text[:colon], text[colon+1:]
	if strings.HasPrefix(host, "[") {
		if !strings.HasSuffix(host, "]") {
			return "has an unclosed [ in its host"
		}
		host = host[1 : len(host)-1]
	} else if strings.Contains(host, ":") {
		// As libzmq does: what follows the last colon is the port.
		if _, err := netip.ParseAddr(host); err != nil {
			return "has a host with a colon that is not an IPv6 address, such as tcp://[::1]:5555"
		}
	}
	switch {
	case host == "":
		return "has no host"
	case host == "*" && !bind:
		return "has the wildcard host, which is for Bind; name a host to connect to"
	case host == "*":
		host = ""
	case strings.ContainsFunc(host, notOfHost):
		return "has a character in its host that cannot be there"
	}
	e.host = host
	if port == "*" && bind {
		return ""
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return "has no port from 1 to 65535"
	}
	if n == 0 && !bind {
		return "has port 0, which is for Bind; name a port to connect to"
	}
	e.port = int(n)
	return ""
}

// notOfHost tells characters that are in no host name, address with a zone, or
// name of an interface.
func notOfHost(c rune) bool {
	switch {
	case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		return false
	}
	return !strings.ContainsRune(".-_:%", c)
}

// parseIPC reads a path, and returns what is wrong, and the system's word for
// it if there is one.
func (e *endpoint) parseIPC(path string, bind bool) (wrong string, cause error) {
	switch {
	case path == "":
		return "has no path; write it as ipc://path", syscall.EINVAL
	case path == "*" && bind:
		return "", nil
	case path == "*":
		return "has the wildcard, which is for Bind; name a path to connect to", syscall.EINVAL
	case path == "@":
		return "has no name behind the @", syscall.EINVAL
	case path[0] == '@' && runtime.GOOS != "linux" && runtime.GOOS != "android":
		return "has an abstract name, which only Linux knows", syscall.EINVAL
	case strings.ContainsRune(path, 0):
		return "has a zero byte in its path", syscall.EINVAL
	case len(path) > maxSocketPath:
		return fmt.Sprintf("has a path of %d bytes; at most %d are possible", len(path), maxSocketPath), syscall.ENAMETOOLONG
	}
	e.name = path
	return "", nil
}

// parseInproc reads a name, and returns what is wrong.
func (e *endpoint) parseInproc(name string) (wrong string) {
	switch {
	case name == "":
		return "has no name; write it as inproc://name"
	case len(name) > maxInprocName:
		return fmt.Sprintf("has a name of %d bytes; at most %d are possible", len(name), maxInprocName)
	}
	e.name = name
	return ""
}
