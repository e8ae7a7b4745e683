package main

import (
	"context"
	"strings"

	"clustermap/internal/command"
	"clustermap/internal/link"
	"clustermap/sockets"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// attachHelp describes endpoints. It is too long for the texts of the flags.
const attachHelp = `An endpoint is tcp://HOST:PORT, HOST:PORT or ipc://PATH. The prefix "bind:" or "connect:" selects
whether it is bound or connected; an endpoint with a wildcard (tcp://*:5559, or port 0
or *) is always bound. Repeat a flag for several endpoints.`

// side is one side of a device: the endpoints of its socket.
type side struct {
	flag string // without the dashes
	list []string
	bind bool // bind endpoints without a prefix

	binds, connects bool     // set by parse
	actual          []string // the actual endpoints, set by attach
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

// parse returns the endpoints. If there are none, it returns an error.
func (s *side) parse() ([]endpoint, error) {
	if len(s.list) == 0 {
		return nil, command.Fail(command.ExitUsage, "give --%s", s.flag)
	}
	var all []endpoint
	for _, text := range s.list {
		e := endpoint{address: text, bind: s.bind || wildcard(link.Complete(text))}
		if address, ok := strings.CutPrefix(text, "bind:"); ok {
			e = endpoint{address, true}
		} else if address, ok := strings.CutPrefix(text, "connect:"); ok {
			e = endpoint{address, false}
		}
		e.address = link.Complete(e.address)
		s.binds, s.connects = s.binds || e.bind, s.connects || !e.bind
		all = append(all, e)
	}
	return all, nil
}

// wildcard reports whether an endpoint can only be bound.
func wildcard(address string) bool {
	_, bind := link.Parse(address, true)
	_, connect := link.Parse(address, false)
	return bind == nil && connect != nil
}

// security returns the security of this side's socket: bound or connected.
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

// attach binds and connects the socket of this side.
func (s *side) attach(ctx context.Context, socket sockets.Socket) error {
	bind := func(ctx context.Context, endpoint string) (string, error) {
		err := socket.Bind(ctx, endpoint)
		return socket.LastEndpoint(), err
	}
	return s.attachTo(ctx, bind, socket.Connect)
}

// attachTo binds and connects this side. bind returns the actual endpoint.
func (s *side) attachTo(ctx context.Context, bind func(context.Context, string) (string, error), connect func(string) error) error {
	all, err := s.parse()
	if err != nil {
		return err
	}
	for _, e := range all {
		actual := e.address
		if e.bind {
			actual, err = bind(ctx, e.address)
		} else {
			err = connect(e.address)
		}
		if err != nil {
			return command.EndpointError("--"+s.flag, e.address, err)
		}
		s.actual = append(s.actual, actual)
	}
	return nil
}

// monitor returns the monitor of this side's socket: see monitor.
func (s *side) monitor(ctx context.Context, cmd *cobra.Command) func(sockets.Event) {
	var connected []string
	all, _ := s.parse() // attach returns its error
	for _, e := range all {
		if !e.bind {
			connected = append(connected, e.address)
		}
	}
	return monitor(ctx, cmd, s.flag, connected...)
}

// monitor returns the monitor of a socket of a device until ctx is done. On standard error
// it logs which of the peers that connect to the socket are denied or fail, and reports
// when no connection is possible to an endpoint that the socket connects to, and when it
// is connected again.
func monitor(ctx context.Context, cmd *cobra.Command, port string, connected ...string) func(sockets.Event) {
	peers := command.PeerLog(ctx, command.NewLog(cmd.ErrOrStderr()))
	reached := map[string]*news{}
	for _, endpoint := range connected {
		reached[endpoint] = newNews(ctx, cmd, endpoint)
	}
	return func(e sockets.Event) {
		if n := reached[e.Endpoint]; n != nil {
			n.watch(e)
			return
		}
		peers.Connection(e, port, false)
	}
}

// String returns the text for the line that reports that a device is ready.
func (s *side) String() string { return s.flag + " " + strings.Join(s.actual, " ") }

// curve holds zdev's names for texts about keys.
var curve = command.Keys{Program: "zdev", Server: "the device there"}
