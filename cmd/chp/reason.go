package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"clustermap/chp"
	"clustermap/internal/command"
	"clustermap/internal/link"
	"clustermap/internal/wake"
	"clustermap/sockets"
	"clustermap/zmtp"
)

// faults returns why the client follows none of its servers, or nil if it follows one.
func (c *client) faults() []chp.ServerFault {
	var idle *chp.NotActiveError
	if errors.As(c.WaitActive(wake.Ended), &idle) {
		return idle.Servers
	}
	return nil
}

// failed closes the channels that say that waiting may be useless.
func (c *client) failed() {
	faults := c.faults()
	hopeless, nobody := len(faults) > 0, len(faults) > 0
	for _, f := range faults {
		hopeless = hopeless && f.Permanent()
		nobody = nobody && (f.Permanent() || nobodyListens(f.Err))
	}
	if hopeless {
		c.refuse.Do(func() { close(c.refused) })
	} else if nobody {
		c.miss.Do(func() { close(c.nobody) })
	}
}

// nobodyListens reports whether an error means that no program listens at an endpoint.
func nobodyListens(err error) bool {
	return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ENOENT) // no such file: ipc
}

// noHost reports whether an error means that a host does not exist.
func noHost(err error) bool {
	var name *net.DNSError
	return errors.As(err, &name) && name.IsNotFound
}

// absent describes at which addresses no server listens, and the errors of the others.
func absent(faults []chp.ServerFault) string {
	var nobody, all []string
	for _, f := range faults {
		err := atFirstPort(f.Server, f.Err)
		if nobodyListens(err) && otherPort(f.Server, err) == "" {
			nobody = append(nobody, f.Server+" ("+reason(f.Server, err)+")")
		} else {
			all = append(all, f.Server+": "+reason(f.Server, err))
		}
	}
	if len(nobody) > 0 {
		all = slices.Insert(all, 0, "no server listens at "+strings.Join(nobody, ", "))
	}
	return strings.Join(all, "; ")
}

// standbys returns the servers that have answered last that they are not active.
func standbys(faults []chp.ServerFault) (list []string) {
	for _, f := range faults {
		if errors.Is(f.Err, chp.ErrStandby) {
			list = append(list, f.Server)
		}
	}
	return list
}

// explain returns the error if all servers have failed permanently, with advice about the
// first one that exists.
func (c *client) explain() error {
	faults := c.faults()
	if len(faults) == 0 {
		return c.noServer(wake.Ended, c.connection.timeout) // it has come back just now
	}
	i := max(0, slices.IndexFunc(faults, func(f chp.ServerFault) bool { return !noHost(f.Err) }))
	server, err := faults[i].Server, faults[i].Err
	var model *chp.ModelError
	switch {
	case errors.As(err, &model):
		return fail(exitRefused, "the server %s is of Clone model %d; set --server-model %d", server, model.Server, model.Server)
	case errors.Is(err, chp.ErrMapTooLarge): // or it sends what no map can be
		return fail(exitRefused, "%s: %s; increase --max-map (%s) if its map is as large", server, plain(err), c.connection.maxMap.String())
	case noHost(err):
		return fail(exitNoServer, "cannot reach %s: no such host", strings.Join(c.servers, ", "))
	}
	if denied := asDenied(err); denied != nil {
		return fail(exitRefused, "%s: %w; chp whoami shows what this client may do", server, plainError{denied})
	}
	return fail(exitRefused, "the server %s %s", server, c.connection.refusal(err))
}

// refusal describes why a server refuses this client with ErrMechanism or ErrRefused.
func (n *connection) refusal(err error) string {
	key := n.security.CurveSecretKey
	denial := (*zmtp.ProtocolError)(nil)
	switch {
	case errors.Is(err, zmtp.ErrMechanism) && key.IsZero() && n.security.PlainUsername != "":
		return "has another security mechanism than --user: CURVE, which needs --curve-key and --curve-server-key, or none"
	case errors.Is(err, zmtp.ErrMechanism) && key.IsZero():
		return "requires CURVE; use --curve-key and --curve-server-key, or with --plain --user"
	case errors.Is(err, zmtp.ErrMechanism):
		return "does not use CURVE; omit --curve-key and --curve-server-key, or start it with --curve-key"
	case errors.Is(err, sockets.ErrServerKey):
		return "cannot read what this client sends: compare --curve-server-key with the key that it prints"
	case key.IsZero() && n.security.PlainUsername != "" && errors.As(err, &denial) && denial.Status() != 0:
		return "does not accept this name and password"
	case key.IsZero():
		return "refused the connection: " + plain(err)
	case errors.As(err, &denial) && denial.Status() == 0: // it is not about the key
		return "refused the connection, as a port does that is not the first of a server's three: " + plain(err)
	}
	return fmt.Sprintf("does not accept this key; start it with '%s' in its --curve-allow", key.Public())
}

// noServer returns the error if no server has answered in time, with the reason for each.
func (c *client) noServer(ctx context.Context, waited time.Duration) error {
	faults := c.faults()
	waiting := standbys(faults)
	promote := "" // advice if one of them is a backup that waits for its primary
	if len(waiting) > 0 {
		promote = c.connection.soon().ask(ctx, waiting).hintPromote()
	}
	// With a wrong --curve-server-key, the server just closes the connection.
	hint := ""
	if !c.connection.security.CurveSecretKey.IsZero() {
		hint = "; if a server runs there, compare --curve-server-key with the key that it prints"
	}
	if len(faults) == 1 {
		f := faults[0]
		err := atFirstPort(f.Server, f.Err)
		why := reason(f.Server, err)
		_, mixed := errors.AsType[*chp.MixedError](err)
		switch {
		case len(waiting) > 0:
			return fail(exitNoServer, "the server %s was not active within %v: %s; add --server for the other server of the pair%s", f.Server, waited, why, promote)
		case mixed:
			return fail(exitNoServer, "%s was not followed within %v: %s", f.Server, waited, why)
		}
		return fail(exitNoServer, "no CHP server answered at %s within %v: %s; %s%s", f.Server, waited, why, advice(f.Server, err), hint)
	}
	var each []string
	advised := ""
	for _, f := range faults {
		err := atFirstPort(f.Server, f.Err)
		if !slices.Contains(waiting, f.Server) {
			each = append(each, f.Server+" ("+reason(f.Server, err)+")")
		}
		if advised == "" || nobodyListens(err) && !strings.HasPrefix(advised, startOne) {
			advised = advice(f.Server, err)
		}
	}
	switch {
	case len(faults) == 0: // the client has become active, or is closed
		return fail(exitNoServer, "no server answered within %v", waited)
	case len(waiting) == len(faults):
		return fail(exitNoServer, "no server was active within %v: %s answered that they are standbys; chp status shows the state of each%s", waited, strings.Join(waiting, " and "), promote)
	case len(waiting) > 0:
		return fail(exitNoServer, "no active server answered within %v at %s; %s answered that it is a standby%s%s", waited, strings.Join(each, ", "), strings.Join(waiting, " and "), hint, promote)
	}
	return fail(exitNoServer, "no CHP server answered within %v at %s; %s%s", waited, strings.Join(each, ", "), advised, hint)
}

// startOne begins the advice to start a server.
const startOne = "start one with: "

// advice says what to do about a server that was not reached. Only where no program
// listens can one be started.
func advice(server string, err error) string {
	_, another := errors.AsType[*firstPortError](err)
	switch {
	case another, unlike(err) != "":
		return "is it the first port of a server?"
	case nobodyListens(err):
		return startOne + serveCommand(server)
	}
	return "is the server running, and can it be reached from here?"
}

// serveCommand returns the command that starts a server, with the flags for its endpoint
// if that is on this machine.
func serveCommand(server string) string {
	text := "chp serve"
	if server == defaultServer {
		return text
	}
	if strings.HasPrefix(server, schemeIPC) {
		return text + " --endpoint " + command.ShellWord(server)
	}
	e, err := link.Parse(server, false)
	ip := net.ParseIP(e.Host())
	if err != nil || e.Host() != "localhost" && !ip.IsLoopback() {
		return text
	}
	if ip != nil && e.Host() != "127.0.0.1" {
		text += " --host " + e.Host()
	}
	if e.Port() != chp.DefaultPort {
		text += " --port " + strconv.Itoa(e.Port())
	}
	return text
}

// firstReason returns why the client does not follow the first server of which it knows
// that, with its name, or "".
func firstReason(faults []chp.ServerFault) string {
	for _, f := range faults {
		if f.Err != nil {
			return f.Server + ": " + reason(f.Server, f.Err)
		}
	}
	return ""
}

// reason describes why a server was not reached. If err is nil, the attempt was still in
// progress.
func reason(server string, err error) string {
	var number syscall.Errno
	var name *net.DNSError
	var mixed *chp.MixedError
	text := "no answer"
	switch {
	case errors.Is(err, chp.ErrStandby):
		return "it is not the active server of its pair"
	case errors.As(err, &mixed):
		return fmt.Sprintf("its ports belong to different servers, at %s and %s; connect to one of them, not through a balancer", mixed.Remote, mixed.Other)
	case unlike(err) != "":
		text = unlike(err)
	case errors.As(err, &number):
		text = number.Error()
	case errors.As(err, &name):
		return "cannot look up its host: " + name.Err
	case errors.Is(err, io.EOF):
		text = "the peer closes the connection"
	}
	if endpoint := otherPort(server, err); endpoint != "" {
		text += " at " + endpoint
		if first := (*firstPortError)(nil); errors.As(err, &first) {
			text += ", and a server needs three ports"
		}
	}
	return text
}

// firstPortError is the error of another port of a server whose first port accepts
// connections, at which no server listens.
type firstPortError struct{ error }

func (e *firstPortError) Unwrap() error { return e.error }

// firstPortTimeout limits the connection that atFirstPort makes.
const firstPortTimeout = time.Second

// atFirstPort returns the error that tells most about a server. A client connects to all
// ports at the same time, so chance decides which refusal comes first; if no server runs,
// that of the first port is returned, even if another came first.
func atFirstPort(server string, err error) error {
	if !nobodyListens(err) || otherPort(server, err) == "" {
		return err
	}
	network, address, _ := strings.Cut(server, "://")
	if network == "ipc" {
		network = "unix"
	}
	c, dialErr := net.DialTimeout(network, address, firstPortTimeout)
	switch {
	case dialErr == nil:
		c.Close()
		return &firstPortError{err}
	case nobodyListens(dialErr):
		return dialErr
	}
	return err
}

// unlike describes an error that shows that the peer is not a CHP server. It returns ""
// for other errors.
func unlike(err error) string {
	switch {
	case errors.Is(err, zmtp.ErrVersion), errors.Is(err, zmtp.ErrMalformed):
		return "the peer does not speak ZMTP"
	case errors.Is(err, zmtp.ErrIncompatible):
		return "the peer is not a CHP server: it has another socket type"
	}
	return ""
}

// otherPort returns the endpoint of the connection that has failed, or "" if it is unknown
// or the server's name, which is the endpoint of its first port.
func otherPort(server string, err error) string {
	var dial *net.OpError
	var peer *sockets.PeerError
	address := ""
	switch {
	case errors.As(err, &peer):
		address = peer.Remote
	case errors.As(err, &dial) && dial.Addr != nil:
		address = dial.Addr.String()
	}
	if path, local := strings.CutPrefix(server, schemeIPC); local {
		if address = strings.TrimPrefix(address, schemeIPC); strings.HasPrefix(address, path+"+") {
			return schemeIPC + address
		}
		return ""
	}
	_, port, _ := net.SplitHostPort(address)
	if port == "" || strings.HasSuffix(server, ":"+port) {
		return ""
	}
	return server[:strings.LastIndexByte(server, ':')+1] + port
}
