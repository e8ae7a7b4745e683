package sockets_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"clustermap/sockets"
	"clustermap/zmtp"
)

// The code of this package on docs/MIGRATION.md. A test in internal/docs compares it
// with the page.

// migrateServer: a REP server.
func migrateServer(ctx context.Context) error {
	server, err := sockets.NewRep(sockets.Options{})
	if err != nil {
		return err
	}
	defer server.Close()
	if err := server.Bind(ctx, "tcp://127.0.0.1:*"); err != nil {
		return err
	}
	for {
		m, err := server.Recv(ctx)
		if err != nil {
			return err
		}
		if err := server.Send(ctx, m...); err != nil {
			return err
		}
	}
}

// migrateClose: a PUSH that is closed with a given time limit.
func migrateClose(ctx context.Context, endpoint string) error {
	push, err := sockets.NewPush(sockets.Options{Linger: sockets.LingerForever})
	if err != nil {
		return err
	}
	defer func() {
		// ctx may be done by now, but queued messages still get five seconds.
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		if err := push.CloseContext(closing); err != nil {
			log.Print("some messages were not sent: ", err)
		}
	}()
	if err := push.Connect(endpoint); err != nil {
		return err
	}
	return push.Send(ctx, []byte("job"))
}

// migrateSub: a SUB with options.
func migrateSub(ctx context.Context) error {
	sub, err := sockets.NewSub(sockets.Options{
		RecvHWM:           10_000,
		RecvTimeout:       5 * time.Second,
		ReconnectInterval: 200 * time.Millisecond,
	})
	if err != nil {
		return err
	}
	defer sub.Close()
	if err := sub.Subscribe("weather."); err != nil {
		return err
	}
	if err := sub.Connect("tcp://127.0.0.1:5556"); err != nil {
		return err
	}
	m, err := sub.Recv(ctx)
	if err != nil {
		return err // context.Canceled, sockets.ErrTimeout, sockets.ErrClosed
	}
	topic, body := m[0], m[1]
	_, _ = topic, body
	return nil
}

// migratePoll: several sockets.
func migratePoll(ctx context.Context, frontend, backend *sockets.Router) error {
	for {
		select {
		case <-frontend.Readable():
			m, err := frontend.Recv(ctx)
			if err != nil {
				return err
			}
			fmt.Printf("frontend: %q\n", m)
		case <-backend.Readable():
			m, err := backend.Recv(ctx)
			if err != nil {
				return err
			}
			fmt.Printf("backend: %q\n", m)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// migrateProxy: a queue device.
func migrateProxy(ctx context.Context, frontend *sockets.Router, backend *sockets.Dealer) error {
	return sockets.Proxy(ctx, frontend, backend)
}

// migrateCurve: both sides of CURVE.
func migrateCurve() error {
	server, client := zmtp.GenerateKeyPair(), zmtp.GenerateKeyPair()
	rep, err := sockets.NewRep(sockets.Options{Security: sockets.Security{
		CurveServer:    true,
		CurveSecretKey: server.Secret,
	}})
	if err != nil {
		return err
	}
	defer rep.Close()
	req, err := sockets.NewReq(sockets.Options{Security: sockets.Security{
		CurveSecretKey: client.Secret,
		CurveServerKey: server.Public,
	}})
	if err != nil {
		return err
	}
	defer req.Close()
	return nil
}

// migrateMonitor: events of connections.
func migrateMonitor() error {
	m := sockets.NewMonitorChan(64)
	dealer, err := sockets.NewDealer(sockets.Options{Monitor: m.Tell})
	if err != nil {
		return err
	}
	defer dealer.Close()
	go func() {
		for e := range m.Events() {
			log.Print(e.Kind, " ", e.Remote, " ", e.Err)
		}
	}()
	return nil
}
