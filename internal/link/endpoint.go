package link

import (
	"cmp"
	"fmt"
	"net"
	"strconv"
	"strings"
	"syscall"

	"clustermap/internal/ipcpath"
)

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

// MarshalText returns the text of Error.
func (e *EndpointError) MarshalText() ([]byte, error) { return []byte(e.Error()), nil }

// Host returns the host of a tcp endpoint: a name, an address without brackets, or "" for
// the wildcard.
func (e *Endpoint) Host() string { return e.host }

// Port returns the port of a tcp endpoint, or 0 for any.
func (e *Endpoint) Port() int { return e.port }

// String returns the endpoint in a form that Parse parses to the same.
func (e Endpoint) String() string {
	switch e.Scheme {
	case TCP:
		return TCP + "://" + e.tcpText()
	case IPC:
		return IPC + "://" + cmp.Or(e.Name, "*")
	}
	return e.Scheme + "://" + e.Name
}

// tcpText returns the part of a tcp endpoint after "://".
func (e *Endpoint) tcpText() string {
	text := net.JoinHostPort(cmp.Or(e.host, "*"), strconv.Itoa(e.port))
	if e.source != nil {
		text = e.source.tcpText() + ";" + text
	}
	return text
}

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
		return Endpoint{}, &EndpointError{Endpoint: text, Reason: "has the transport " + strconv.Quote(scheme) + ", which is not supported; use tcp, ipc or inproc", Err: syscall.EPROTONOSUPPORT}
	}
	e.Scheme = scheme
	if wrong, cause := t.parse(&e, rest, bind); wrong != "" {
		return Endpoint{}, &EndpointError{Endpoint: text, Reason: wrong, Err: cause}
	}
	return e, nil
}

// ParseServer parses an endpoint that names the three of a CHP server: the ports P, P+1 and
// P+2, or names of which two end in +1 and +2.
func ParseServer(text string, bind bool) (Endpoint, error) {
	e, err := Parse(text, bind)
	reason := ""
	switch {
	case err != nil:
		return e, err
	case e.source != nil:
		reason = "has a source address"
	case e.port > MaxServerPort:
		reason = fmt.Sprintf("needs a port from 1 to %d, with two more above it", MaxServerPort)
	case e.Scheme == IPC:
		if err := ipcpath.Check(e.Name, ipcpath.MaxServer); err != nil {
			reason = err.Error()
		}
	}
	if reason != "" {
		return Endpoint{}, &EndpointError{Endpoint: text, Reason: reason}
	}
	return e, nil
}

// Complete returns a text that names an endpoint, as a user writes it: HOST:PORT stands for
// tcp://HOST:PORT. It returns any other text as it is.
func Complete(text string) string {
	if strings.Contains(text, "://") {
		return text
	}
	full := TCP + "://" + text
	for _, bind := range []bool{true, false} {
		if _, err := Parse(full, bind); err == nil {
			return full
		}
	}
	return text
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
