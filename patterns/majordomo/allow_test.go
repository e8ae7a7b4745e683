package majordomo

import (
	"log/slog"
	"strings"
	"testing"

	"clustermap/internal/testenv"
	"clustermap/sockets"
	"clustermap/zmtp"
)

// refusedWorker starts a raw worker that must be sent DISCONNECT.
func refusedWorker(t *testing.T, endpoint, service string, v Version, o sockets.Options) {
	t.Helper()
	o.Linger = sockets.LingerNone
	r := newRaw(t, endpoint, o)
	if v == Version02 {
		r.send(worker02, "\x01", service)
		r.await(worker02, "\x06")
		return
	}
	r.send("", worker01, cReady, service)
	r.await("", worker01, cDisconnect)
}

// While a worker has a service of titanic, no other peer becomes one, in neither version:
// it is told and logged, and gets no request. When the first one has gone, another may.
func TestTitanicsServicesHaveOneWorker(t *testing.T) {
	t.Parallel()
	var log testenv.Buffer
	b, endpoint := startBroker(t, BrokerOptions{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	first := startWorker(t, "titanic.request", endpoint, echo, WorkerOptions{Concurrency: 3})
	eventually(t, "all connections of a worker register", func() bool { return workersOf(b, "titanic.request") == 3 })
	for _, v := range []Version{Version01, Version02} {
		refusedWorker(t, endpoint, "titanic.request", v, sockets.Options{})
	}
	dismissed := make(chan struct{}, 100)
	second := startWorker(t, "titanic.request", endpoint, echo, WorkerOptions{OnDismiss: func() { dismissed <- struct{}{} }})
	<-dismissed
	select {
	case <-second.first:
		t.Error("the worker that is refused says that it is registered")
	default:
	}
	if n := workersOf(b, "titanic.request"); n != 3 {
		t.Errorf("%d workers", n)
	}
	for _, want := range []string{"worker refused", "service=titanic.request", `reason="another worker has the service"`, "remote=127.0.0.1:"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("no %s in the log:\n%s", want, log.String())
		}
	}
	if n := strings.Count(log.String(), "\n"); n > 3 { // more only on a very slow machine
		t.Errorf("%d lines about one peer", n)
	}
	must(t, first.Close())
	must(t, second.WaitRegistered(testContext(t)))
	if n := workersOf(b, "titanic.request"); n != 1 {
		t.Errorf("%d workers when another one has registered", n)
	}
	must(t, second.Close())
}

// With CURVE the services of titanic are for the broker's own key, and for a worker in its
// process; what is refused is logged with its key.
func TestTitanicsServicesNeedTheBrokersKey(t *testing.T) {
	t.Parallel()
	keys, other := zmtp.GenerateKeyPair(), zmtp.GenerateKeyPair()
	var log testenv.Buffer
	names := new(sockets.Inproc)
	b, endpoint := startBroker(t, BrokerOptions{Logger: slog.New(slog.NewTextHandler(&log, nil)), Socket: sockets.Options{
		Inproc: names, Security: sockets.Security{CurveServer: true, CurveSecretKey: keys.Secret},
	}})
	client := func(k zmtp.KeyPair) sockets.Options {
		return sockets.Options{Security: sockets.Security{CurveSecretKey: k.Secret, CurveServerKey: keys.Public}}
	}
	refusedWorker(t, endpoint, "titanic.reply", Version01, client(other))
	if !strings.Contains(log.String(), `reason="not allowed"`) || !strings.Contains(log.String(), other.Public.String()) {
		t.Errorf("the log does not say who was refused:\n%s", log.String())
	}
	startWorker(t, "titanic.reply", endpoint, echo, WorkerOptions{Socket: client(keys)})
	startWorker(t, "echo", endpoint, echo, WorkerOptions{Socket: client(other)})
	_, err := b.Bind(testContext(t), "inproc://broker")
	must(t, err)
	startWorker(t, "titanic.close", "inproc://broker", echo, WorkerOptions{Socket: sockets.Options{Inproc: names}})
	for _, service := range []string{"titanic.reply", "echo", "titanic.close"} {
		eventually(t, service+" registers", func() bool { return workersOf(b, service) == 1 })
	}
}

// AllowWorker decides about every service but those of the broker.
func TestAllowWorkerDecides(t *testing.T) {
	t.Parallel()
	b, endpoint := startBroker(t, BrokerOptions{Logger: slog.New(slog.DiscardHandler), AllowWorker: func(service string, w *sockets.Peer) bool {
		who, _ := w.Property("X-Who")
		return who == service || who == "mmi"
	}})
	as := func(who string) sockets.Options { return sockets.Options{Metadata: map[string]string{"X-Who": who}} }
	refusedWorker(t, endpoint, "pay", Version01, as("echo"))
	refusedWorker(t, endpoint, "mmi.service", Version01, as("mmi"))
	startWorker(t, "pay", endpoint, echo, WorkerOptions{Socket: as("pay")})
	eventually(t, "pay registers", func() bool { return workersOf(b, "pay") == 1 })
}
