package main

import (
	"context"
	"strings"

	"clustermap/internal/command"
	"clustermap/sockets"

	"github.com/spf13/pflag"
)

// attachHelp explains the endpoints of a side. The text of the flags has no room for it.
const attachHelp = `An endpoint is tcp://HOST:PORT or ipc://PATH. Put "bind:" or "connect:" before it to
say which; an endpoint with a wildcard (tcp://*:5559, or port 0 or *) is bound in any
case. Repeat a flag for several endpoints.`

// side is one side of a device: the endpoints of its socket.
type side struct {
	flag string // without the dashes
	list []string
	bind bool // what an endpoint without "bind:" or "connect:" means

	binds, connects bool     // after parse
	actual          []string // after attach, for people
}

// endpoint is one endpoint of a side.
type endpoint struct {
	address string
	bind    bool
}

// register adds the flag.
func (s *side) register(flags *pflag.FlagSet, flag, usage string) {
	s.flag = flag
	flags.StringArrayVar(&s.list, flag, nil, usage)
}

// parse returns the endpoints. There is at least one.
func (s *side) parse() ([]endpoint, error) {
	if len(s.list) == 0 {
		return nil, command.Fail(command.ExitUsage, "give --%s", s.flag)
	}
	var all []endpoint
	for _, text := range s.list {
		e := endpoint{address: text, bind: s.bind || wildcard(text)}
		if address, ok := strings.CutPrefix(text, "bind:"); ok {
			e = endpoint{address, true}
		} else if address, ok := strings.CutPrefix(text, "connect:"); ok {
			e = endpoint{address, false}
		}
		s.binds, s.connects = s.binds || e.bind, s.connects || !e.bind
		all = append(all, e)
	}
	return all, nil
}

// wildcard says whether an endpoint can only be bound.
func wildcard(address string) bool {
	_, rest, _ := strings.Cut(address, "://")
	return strings.HasPrefix(rest, "*") || strings.HasSuffix(rest, ":*") || strings.HasSuffix(rest, ":0")
}

// security chooses what the socket of this side needs of a device's two.
func (s *side) security(bound, connected sockets.Security) (sockets.Security, error) {
	if _, err := s.parse(); err != nil {
		return bound, err
	}
	switch {
	case s.binds && s.connects && (bound.CurveServer || !connected.CurveSecretKey.IsZero()):
		return bound, command.Fail(command.ExitUsage, "--%s: with CURVE its endpoints are either all bound or all connected", s.flag)
	case s.binds:
		return bound, nil
	}
	return connected, nil
}

// attachable is a socket, or what has one.
type attachable interface {
	Bind(ctx context.Context, endpoint string) error
	Connect(endpoint string) error
	LastEndpoint() string
}

// attach binds and connects the socket of this side.
func (s *side) attach(ctx context.Context, socket attachable) error {
	all, err := s.parse()
	if err != nil {
		return err
	}
	for _, e := range all {
		if e.bind {
			err = socket.Bind(ctx, e.address)
		} else {
			err = socket.Connect(e.address)
		}
		if err != nil {
			return command.EndpointError("--"+s.flag, e.address, err)
		}
		if e.bind {
			s.actual = append(s.actual, socket.LastEndpoint())
		} else {
			s.actual = append(s.actual, e.address)
		}
	}
	return nil
}

// String is the side in the line that says that a device is ready.
func (s *side) String() string { return s.flag + " " + strings.Join(s.actual, " ") }
