package titanic

import (
	"context"
	"errors"

	"clustermap/patterns/majordomo"
)

// New opens the store and starts a server, which runs until Close. It connects in the
// background; the broker may start later. Errors of options are *OptionError, those of the
// store *StoreError, and those of the endpoint are from package sockets.
func New(o Options) (*Server, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	// Open the store before connecting, so that its error is the only one.
	s, err := openServer(o)
	if err != nil {
		return nil, err
	}
	client, err := majordomo.NewClient(majordomo.ClientOptions{
		Broker: o.Broker, Socket: o.Socket,
		// The dispatcher repeats requests itself, and bounds their number and time.
		// With brokers of other implementations each request needs its own connection,
		// and slow services must not use all of them.
		Attempts: 1, Timeout: -1, Connections: maxConnections,
	})
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	s.start(majordomoBroker{client})
	s.client = client
	for name, handler := range map[string]majordomo.Handler{
		serviceRequest: s.request,
		serviceReply:   s.reply,
		serviceClose:   s.close,
	} {
		w, err := majordomo.NewWorker(name, handler, majordomo.WorkerOptions{
			Broker: o.Broker, Concurrency: o.Concurrency, Heartbeat: o.Heartbeat, Liveness: o.Liveness, Socket: o.Socket, OnDismiss: o.OnDismiss,
		})
		if err != nil {
			return nil, errors.Join(err, s.Close())
		}
		s.workers = append(s.workers, w)
	}
	return s, nil
}

// WaitRegistered waits until the server has registered the three services at a broker.
func (s *Server) WaitRegistered(ctx context.Context) error {
	for _, w := range s.workers {
		if err := w.WaitRegistered(ctx); err != nil {
			return err
		}
	}
	return nil
}

// majordomoBroker implements broker with a Majordomo client.
type majordomoBroker struct{ client *majordomo.Client }

func (b majordomoBroker) available(ctx context.Context, service string) (bool, error) {
	return b.client.Available(ctx, service)
}

func (b majordomoBroker) execute(ctx context.Context, service string, body [][]byte) ([][]byte, error) {
	reply, err := b.client.Request(ctx, service, body...)
	var refused *majordomo.Error
	switch {
	case err == nil:
		return reply, nil
	case errors.Is(err, majordomo.ErrNoService), errors.Is(err, majordomo.ErrQueueFull),
		errors.Is(err, majordomo.ErrExpired), errors.Is(err, majordomo.ErrNoReply):
		return nil, errUnavailable
	case errors.Is(err, majordomo.ErrWorkerLost):
		return nil, err // maybe because of this request: others go first
	case errors.As(err, &refused):
		return nil, &RefusedError{refused.Code, refused.Text}
	}
	return nil, err
}
