package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"syscall"
	"time"

	"clustermap/chp"
	"clustermap/internal/command"
	"clustermap/internal/visible"
	"clustermap/sockets"
)

// client is a client of package chp that explains why it has no server.
type client struct {
	*chp.Client
	connection *connection
	servers    []string
	connected  chan struct{} // closed when any server is connected
	gone       chan struct{} // closed when the client has followed no server for the timeout after it lost one
	refused    chan struct{} // closed when every server has failed for a permanent reason; see hopeless
	nobody     chan struct{} // closed when every server has failed, at least one because it may not have started yet

	refuse, miss sync.Once // close the two
}

// start returns a client that connects to the servers. The caller closes it.
func (n *connection) start(o chp.ClientOptions) (*client, error) {
	servers, err := n.servers()
	if err != nil {
		return nil, err
	}
	o.Servers = servers
	c := &client{
		connection: n, servers: servers,
		connected: make(chan struct{}), gone: make(chan struct{}), refused: make(chan struct{}), nobody: make(chan struct{}),
	}
	o.Security, o.Model = n.security, chp.Model(n.model)
	if o.MaxMapBytes = int64(n.maxMap); o.MaxMapBytes == 0 {
		o.MaxMapBytes = -1
	}
	o.Logger = slog.New(slog.DiscardHandler) // the command says it itself
	var connect, lose sync.Once
	away := time.AfterFunc(n.timeout, func() { lose.Do(func() { close(c.gone) }) })
	away.Stop()                                 // until a server is lost
	active, losing, lost := false, false, false // used only by the goroutine that calls both functions
	started := make(chan struct{})              // closed when c has its Client
	defer close(started)
	o.OnFailure = func(server string, err error) {
		if <-started; c.Client != nil {
			c.failed()
		}
		if losing {
			losing, lost = false, true
			n.say("lost %s: %s; trying again", server, lossOf(err))
		}
	}
	o.OnState = func(state chp.State, server string) {
		if state != chp.StateInitial {
			connect.Do(func() { close(c.connected) })
		}
		if active && state != chp.StateActive {
			losing = true
			away.Reset(n.timeout)
		}
		if state == chp.StateActive {
			away.Stop()
		}
		if lost && state == chp.StateActive {
			lost = false
			n.say("following %s again", server)
		}
		active = state == chp.StateActive
	}
	c.Client, err = chp.NewClient(o)
	if option := (*chp.OptionError)(nil); errors.As(err, &option) && option.Field == "Subtrees" {
		return nil, fail(exitUsage, "subtree %s", option.Reason)
	}
	if err != nil {
		return nil, fail(exitUsage, "%s", plain(err))
	}
	return c, nil
}

// say sends a line to news. It never waits, because standard error may be a pipe without
// a reader.
func (n *connection) say(format string, a ...any) {
	select {
	case n.news <- "chp: " + visible.String(fmt.Sprintf(format, a...)):
	default:
	}
}

// lossOf describes why the client has lost a server.
func lossOf(err error) string {
	var number syscall.Errno
	switch {
	case errors.Is(err, chp.ErrSilent), errors.Is(err, sockets.ErrHeartbeatTimeout):
		return "it is silent"
	case errors.As(err, &number):
		return number.Error()
	case errors.Is(err, io.EOF):
		return "it ended the connection"
	}
	return plain(err)
}

// open calls start and waits until the client is in sync.
func (n *connection) open(ctx context.Context, o chp.ClientOptions) (*client, error) {
	c, err := n.start(o)
	if err != nil {
		return nil, err
	}
	if err := c.wait(ctx); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// wait waits until the client is in sync. After the timeout, the error explains why not.
func (c *client) wait(ctx context.Context) error {
	limit := c.connection.timeout
	reach := limit
	if !c.connection.given() {
		reach = min(reach, reachTimeout)
	}
	calling := ctx
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()

	unreached := time.NewTimer(reach)
	defer unreached.Stop()
	for nobody := c.nobody; ; {
		select {
		case <-c.connected:
		case <-ctx.Done():
		case <-c.refused:
			return c.explain()
		case <-nobody:
			// The port may be wrong, or the server may still be starting.
			fmt.Fprintf(c.connection.stderr, "chp: %s; waiting up to %v for a server to start\n", visible.String(absent(c.faults())), reach)
			nobody = nil
			continue
		case <-unreached.C:
			return c.noServer(calling, reach)
		}
		break
	}
	// A map that is too large is noticed only now.
	waiting, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		select {
		case <-c.refused:
			stop()
		case <-waiting.Done():
		}
	}()
	err := c.WaitActive(waiting)
	switch {
	case errors.Is(err, context.Canceled) && ctx.Err() == nil:
		return c.explain()
	case !errors.Is(err, context.DeadlineExceeded):
		return err
	case len(standbys(c.faults())) > 0:
		return c.noServer(calling, limit)
	case c.State() == chp.StateSyncing && errors.Is(err, chp.ErrSilent):
		return fail(exitNoServer, "the server %s accepted the connections but sent nothing within %v", c.Server(), limit)
	case c.State() == chp.StateSyncing:
		return fail(exitNoServer, "the server %s did not send its complete map within %v; increase --timeout", c.Server(), limit)
	}
	return c.noServer(calling, limit)
}

// confirm converts the error of an update to one with an exit code, whose text says
// whether the server may have stored the update.
func (c *client) confirm(err error) error {
	const unknown = "the update may or may not have been stored: check with chp get, or repeat it"
	switch {
	case errors.Is(err, chp.ErrUncertain):
		return fail(exitNoServer, "lost the connection before the server confirmed; %s", unknown)
	case errors.Is(err, context.DeadlineExceeded):
		if idle := (*chp.NotActiveError)(nil); errors.As(err, &idle) {
			if why := firstReason(idle.Servers); why != "" {
				return fail(exitNoServer, "the server did not confirm within %v: %s; %s", c.connection.timeout, why, unknown)
			}
		}
		return fail(exitNoServer, "the server did not confirm within %v; %s", c.connection.timeout, unknown)
	case errors.Is(err, &chp.MessageError{Reason: chp.ReasonValueTooLarge}):
		limit := ""
		if refusal := (*chp.MessageError)(nil); errors.As(err, &refusal) && refusal.Detail != "" {
			limit = " (" + refusal.Detail + ")"
		}
		return fail(exitRefused, "the value is larger than the server %s accepts%s; start it with a larger --max-value-size", c.Server(), limit)
	}
	return refused(err)
}

// refused adds exitRefused to an error of package chp. Errors with an exit code, and those
// of contexts, are returned unchanged.
func refused(err error) error {
	var coded *command.Error
	if err == nil || errors.As(err, &coded) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return fail(exitRefused, "%s", plain(err))
}

// plain returns the text of an error without the name of the package, because the command
// has the same name and prints it once. Joined errors are on one line.
func plain(err error) string { return strings.ReplaceAll(command.ErrorText(err, "; "), "chp: ", "") }
