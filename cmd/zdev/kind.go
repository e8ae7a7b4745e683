package main

import (
	"errors"
	"fmt"
	"strings"

	"clustermap/internal/command"
	"clustermap/sockets"
)

// kind selects the socket types of a device's frontend and backend.
type kind string

const (
	pubsub   kind = "pubsub"
	reqrep   kind = "reqrep"
	pipeline kind = "pipeline"
)

var kinds = []string{string(pubsub), string(reqrep), string(pipeline)}

// sockets creates the frontend and the backend of a device.
func (k kind) sockets(frontend, backend sockets.Options) (front, back sockets.Socket, err error) {
	var e1, e2 error
	switch k {
	case pubsub:
		front, e1 = sockets.NewXSub(frontend)
		back, e2 = sockets.NewXPub(backend)
	case reqrep:
		front, e1 = sockets.NewRouter(frontend)
		back, e2 = sockets.NewDealer(backend)
	case pipeline:
		front, e1 = sockets.NewPull(frontend)
		back, e2 = sockets.NewPush(backend)
	default:
		e1 = fmt.Errorf("--kind %q: give %s", string(k), strings.Join(kinds, ", "))
	}
	if err := errors.Join(e1, e2); err != nil {
		return nil, nil, command.Fail(command.ExitUsage, "%w", err)
	}
	return front, back, nil
}
