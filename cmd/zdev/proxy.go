package main

import (
	"context"
	"errors"

	"clustermap/internal/command"
	"clustermap/internal/httpside"
	"clustermap/sockets"
	"clustermap/sockets/metrics"

	"github.com/spf13/cobra"
)

// between holds the flags of a device with a frontend and a backend.
type between struct {
	kind              string
	frontend, backend side
	curve             command.DeviceKeys
	http              httpFlags

	bound sockets.Security // after open
}

// register adds the flags.
func (b *between) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&b.kind, "kind", b.kind, "kind of sockets: "+string(pubsub)+", "+string(reqrep)+", "+string(pipeline))
	command.Complete(cmd, "kind", kinds...)
	b.frontend.register(flags, "frontend", "`endpoint` on the side of publishers, clients, or PUSH sockets")
	b.backend.register(flags, "backend", "`endpoint` on the side of subscribers, services, or PULL sockets")
	b.curve = command.DeviceKeys{Keys: curve}
	b.curve.Register(flags)
	b.http.register(flags)
}

// open creates the sockets, and binds and connects them. The caller closes them.
func (b *between) open(ctx context.Context, cmd *cobra.Command) (front, back sockets.Socket, err error) {
	var connected sockets.Security
	if b.bound, connected, err = b.curve.Security(); err != nil {
		return nil, nil, err
	}
	var f, r sockets.Options
	if f.Security, err = b.frontend.security(b.bound, connected); err != nil {
		return nil, nil, err
	}
	if r.Security, err = b.backend.security(b.bound, connected); err != nil {
		return nil, nil, err
	}
	f.Monitor, r.Monitor = b.frontend.monitor(ctx, cmd), b.backend.monitor(ctx, cmd)
	if front, back, err = kind(b.kind).sockets(f, r); err != nil {
		return nil, nil, err
	}
	if err = b.frontend.attach(ctx, front); err == nil {
		err = b.backend.attach(ctx, back)
	}
	if err != nil {
		front.Close()
		back.Close()
		return nil, nil, err
	}
	return front, back, nil
}

// ready opens --http, which the caller closes, and reports that the device is ready.
func (b *between) ready(ctx context.Context, cmd *cobra.Command, front, back sockets.Socket) (*httpside.Side, error) {
	side, err := b.http.open(ctx, cmd, metrics.NewCollector("frontend", front), metrics.NewCollector("backend", back))
	if err != nil {
		return nil, err
	}
	command.Ready(cmd, b.bound, b.kind+" "+b.frontend.String()+", "+b.backend.String())
	return side, nil
}

func newProxy() *cobra.Command {
	b := between{frontend: side{bind: true}, backend: side{bind: true}}
	cmd := &cobra.Command{
		Use:   "proxy",
		Short: "Forward messages between two endpoints",
		Long: `Forwards messages between a frontend and a backend:

  pubsub    XSUB and XPUB: messages to subscribers, and subscriptions to publishers
  reqrep    ROUTER and DEALER: requests are distributed among services, replies return
  pipeline  PULL and PUSH: messages are distributed among workers

` + attachHelp + `
Without a prefix it is bound.

When the queue of a slow peer is full, its senders have to wait; in pubsub a subscriber
that is 1,000 messages behind misses the next ones.

When the proxy ends, messages that it has received but not sent are lost.`,
		Example: `  zdev proxy --kind pubsub --frontend tcp://*:5559 --backend tcp://*:5560
  zdev proxy --kind pubsub --frontend connect:tcp://10.0.0.7:5556 \
    --backend tcp://*:8100
  zdev proxy --kind reqrep --frontend tcp://*:5559 --backend ipc:///run/workers`,
	}
	b.register(cmd)
	cmd.RunE = command.Runs(func(ctx context.Context, cmd *cobra.Command, _ []string) error {
		front, back, err := b.open(ctx, cmd)
		if err != nil {
			return err
		}
		side, err := b.ready(ctx, cmd, front, back)
		if err == nil {
			if err = sockets.Proxy(ctx, front, back); ctx.Err() != nil {
				err = nil // a signal
			}
			side.Close()
		}
		return errors.Join(err, closeBoth(front, back))
	})
	return cmd
}

// closeBoth closes both sockets at the same time, because each may have to wait until its
// messages are written.
func closeBoth(front, back sockets.Socket) error {
	closed := make(chan error, 1)
	go func() { closed <- front.Close() }()
	err := back.Close()
	return errors.Join(err, <-closed)
}
