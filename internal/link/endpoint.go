package link

import (
	"fmt"
	"net"
	"strconv"
	"strings"
)

// maxInprocName is the maximum size of an inproc name in bytes, as in libzmq.
const maxInprocName = 256

// Endpoint is a parsed endpoint.
type Endpoint struct {
	Text   string // as the application wrote it
	Scheme string

	// Name is the name of an inproc endpoint, or the path of an ipc endpoint:
	// "@name" for an abstract name, "" for a temporary path (bind only).
	Name string

	// tcp only
	host   string    // "" for all interfaces (bind and source only)
	port   int       // 0 for any free port (bind and source only)
	source *Endpoint // the address to connect from, or nil
}

// EndpointError reports an invalid endpoint. Trying the same text again does not
// help.
type EndpointError struct {
	Endpoint string
	Reason   string
	Err      error // the corresponding system error, such as syscall.ENAMETOOLONG, or nil
}

func (e *EndpointError) Error() string {
	return fmt.Sprintf("sockets: endpoint %q: %s", e.Endpoint, e.Reason)
}

// Unwrap returns Err.
func (e *EndpointError) Unwrap() error { return e.Err }

// Local reports whether the transport connects only within this machine, so
// connecting takes no time.
func (e *Endpoint) Local() bool { return transports[e.Scheme].local }

// address returns host and port in the form that package net expects.
func (e *Endpoint) address() string { return net.JoinHostPort(e.host, strconv.Itoa(e.port)) }

// Parse parses an endpoint. The wildcard "*" for host, port or path, and port 0,
// are allowed only if bind is true; a source address only if it is false. The error
// is an *EndpointError.
func Parse(text string, bind bool) (Endpoint, error) {
	e := Endpoint{Text: text}
	scheme, rest, ok := strings.Cut(text, "://")
	if !ok {
		return Endpoint{}, &EndpointError{Endpoint: text, Reason: "has no transport; write it as tcp://host:port, ipc://path or inproc://name"}
	}
	t, ok := transports[scheme]
	if !ok {
		return Endpoint{}, &EndpointError{Endpoint: text, Reason: "transport " + strconv.Quote(scheme) + " is not supported; use tcp, ipc or inproc"}
	}
	e.Scheme = scheme
	if wrong, cause := t.parse(&e, rest, bind); wrong != "" {
		return Endpoint{}, &EndpointError{Endpoint: text, Reason: wrong, Err: cause}
	}
	return e, nil
}

// parseInproc parses a name.
func parseInproc(e *Endpoint, name string, _ bool) (wrong string, cause error) {
	switch {
	case name == "":
		return "has no name; write it as inproc://name", nil
	case len(name) > maxInprocName:
		return fmt.Sprintf("has a name of %d bytes; at most %d are allowed", len(name), maxInprocName), nil
	}
	e.Name = name
	return "", nil
}
