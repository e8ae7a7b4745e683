package main

import (
	"context"
	"net"
	"os"
	"time"

	"clustermap/chp"
)

// notifyVariable names the socket of a service manager, as systemd sets it for services
// with Type=notify: see sd_notify(3).
const notifyVariable = "NOTIFY_SOCKET"

// notifyTimeout bounds the wait for a service manager that does not read its socket.
const notifyTimeout = 5 * time.Second

// notifyManager sends a state to the socket of a service manager: one datagram.
func notifyManager(name, state string) error {
	// Package net takes a name with @ at the beginning for an abstract one, as systemd
	// writes it.
	socket, err := net.Dial("unixgram", name)
	if err != nil {
		return err
	}
	defer socket.Close()
	if err := socket.SetWriteDeadline(time.Now().Add(notifyTimeout)); err != nil {
		return err
	}
	_, err = socket.Write([]byte(state))
	return err
}

// roleCheck is how often waitRole asks for the state of a server.
const roleCheck = 20 * time.Millisecond

// waitRole waits until a server has begun to serve, and one of a pair also until it is
// active or passive, or has not heard the other one for silence. Then it waits for a client
// or for the other server, which may start only after this one is ready.
func waitRole(ctx context.Context, server *chp.Server, silence time.Duration) {
	select {
	case <-server.Ready():
	case <-ctx.Done():
		return
	}
	alone := time.NewTimer(silence)
	defer alone.Stop()
	again := time.NewTicker(roleCheck)
	defer again.Stop()
	for server.Status().State == chp.ServerWaiting {
		select {
		case <-again.C:
		case <-alone.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// tellManager tells the service manager, if there is one, that the server is ready, and
// when ctx ends that it is stopping. report gets the errors.
func tellManager(ctx context.Context, server *chp.Server, silence time.Duration, report func(error)) {
	name := os.Getenv(notifyVariable)
	if name == "" {
		return
	}
	waitRole(ctx, server, silence)
	if ctx.Err() == nil {
		if err := notifyManager(name, "READY=1"); err != nil {
			report(err)
		}
	}
	<-ctx.Done()
	if err := notifyManager(name, "STOPPING=1"); err != nil {
		report(err)
	}
}
