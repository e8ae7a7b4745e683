package titanic

import (
	"context"
	"errors"
	"slices"

	"clustermap/patterns/majordomo"
)

// New opens the store and starts a server, which runs until Close. That there is no
// broker yet is no error: the server connects when there is one. Faults of the options
// are *OptionError, those of the store *StoreError, and those of the endpoint package
// sockets'.
func New(o Options) (*Server, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	// Before anything connects: a store that cannot be opened is all there is to report.
	s, err := openServer(o)
	if err != nil {
		return nil, err
	}
	client, err := majordomo.NewClient(majordomo.ClientOptions{
		Broker: o.Broker, Socket: o.Socket,
		// The dispatcher repeats requests itself, and bounds their number and their
		// time. At brokers of other makes each request needs a connection of its own,
		// of which slow services must not take all.
		Attempts: 1, Timeout: -1, Connections: maxConnections,
	})
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	s.start(majordomoBroker{client})
	s.peers = []interface{ Close() error }{client}
	for name, handler := range map[string]majordomo.Handler{
		serviceRequest: s.request,
		serviceReply:   s.reply,
		serviceClose:   s.close,
	} {
		w, err := majordomo.NewWorker(name, handler, majordomo.WorkerOptions{
			Broker: o.Broker, Concurrency: o.Concurrency, Heartbeat: o.Heartbeat, Liveness: o.Liveness, Socket: o.Socket,
		})
		if err != nil {
			return nil, errors.Join(err, s.Close())
		}
		s.workers = append(s.workers, w)
		s.peers = append(s.peers, w)
	}
	slices.Reverse(s.peers) // no request comes in any more when the client goes
	return s, nil
}

// WaitRegistered returns when the broker has been told of the three services.
func (s *Server) WaitRegistered(ctx context.Context) error {
	for _, w := range s.workers {
		if err := w.WaitRegistered(ctx); err != nil {
			return err
		}
	}
	return nil
}

// maxConnections bounds the connections to a broker of another make.
const maxConnections = 4096

// majordomoBroker is a Majordomo broker.
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
		return nil, err // perhaps by this request: others go first
	case errors.As(err, &refused):
		return nil, &RefusedError{refused.Code, refused.Text}
	}
	return nil, err
}
