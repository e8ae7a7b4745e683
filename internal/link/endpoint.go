package link

import (
	"fmt"
	"net"
	"strconv"
	"strings"
)

// maxInprocName bounds an inproc name, as libzmq does.
const maxInprocName = 256

// Endpoint is a parsed endpoint.
type Endpoint struct {
	Text   string // as the application wrote it
	Scheme string

	// Name is of ipc: the path, @name for an abstract one, or "" for one of
	// the system's choice (bind only); or of inproc.
	Name string

	// tcp
	host   string // "" means all interfaces (bind, and source)
	port   int    // 0 means a port of the system's choice (bind, and source)
	source *Endpoint
}

// EndpointError says what is wrong with an endpoint such as
// "tcp://127.0.0.1:5555". Trying the same text again does not help.
type EndpointError struct {
	Endpoint string
	Reason   string
	Err      error // the system's error, such as syscall.ENAMETOOLONG, or nil
}

func (e *EndpointError) Error() string {
	return fmt.Sprintf("sockets: endpoint %q: %s", e.Endpoint, e.Reason)
}

// Unwrap returns Err.
func (e *EndpointError) Unwrap() error { return e.Err }

// Local reports whether the other end is on this machine, so that connecting takes
// no time.
func (e *Endpoint) Local() bool { return transports[e.Scheme].local }

// address is host and port as package net takes them.
func (e *Endpoint) address() string { return net.JoinHostPort(e.host, strconv.Itoa(e.port)) }

// Parse reads an endpoint. The wildcards "*" for host, port and path,
// and port 0, are for bind only; so a source address is for connect. The error is an
// *EndpointError.
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

// parseInproc reads a name.
func parseInproc(e *Endpoint, name string, _ bool) (wrong string, cause error) {
	switch {
	case name == "":
		return "has no name; write it as inproc://name", nil
	case len(name) > maxInprocName:
		return fmt.Sprintf("has a name of %d bytes; at most %d are possible", len(name), maxInprocName), nil
	}
	e.Name = name
	return "", nil
}
