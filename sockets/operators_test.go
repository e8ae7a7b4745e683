package sockets

import (
	"context"
	"errors"
	"net"
	"testing"

	"clustermap/internal/bounds"
	"clustermap/zmtp"
)

// TestOperatorsGetInWhenAllPlacesAreTaken: peers on this machine are accepted beyond
// MaxConnections. They replace each other, and no ordinary peer.
func TestOperatorsGetInWhenAllPlacesAreTaken(t *testing.T) {
	t.Parallel()
	seen := newEvents()
	router := open(t, NewRouter, Options{MaxConnections: 2, Operator: func(*Peer) bool { return false }, Monitor: seen.Tell})
	router.core.Tuning.OperatorTurn = 0
	must(t, router.Bind(testContext(t), anyPort))
	arrive := func() *raw {
		r := dialRaw(t, router.LastEndpoint()).Greet("DEALER", nil)
		r.Sync()
		return r
	}
	ordinary := []*raw{arrive(), arrive()}
	var operators []*raw
	for range bounds.OperatorPlaces {
		operators = append(operators, arrive())
	}
	arrive()
	operators[0].Ended()
	if e := seen.Await(t, EventDisconnected); !errors.Is(e.Err, ErrTooManyConnections) {
		t.Errorf("the first operator was disconnected with %v", e.Err)
	}
	for _, r := range append(ordinary, operators[1:]...) {
		r.Sync()
	}
	// One that says nothing keeps no place.
	for range bounds.OperatorPlaces + 1 {
		dialRaw(t, router.LastEndpoint())
	}
	arrive()
	must(t, router.SetOptions(func(o *Options) { o.Operator = nil }))
	more := dialRaw(t, router.LastEndpoint())
	more.Ended()
	if e := seen.Await(t, EventAcceptFailed); !errors.Is(e.Err, ErrTooManyConnections) {
		t.Errorf("%+v", e)
	}
}

// distant are connections from elsewhere, for all that the socket can see.
type distant struct{ net.Listener }

func (l distant) Accept() (net.Conn, error) {
	nc, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return struct{ net.Conn }{nc}, nil
}

func listenDistant(ctx context.Context, network, address string) (net.Listener, error) {
	l, err := new(net.ListenConfig).Listen(ctx, network, address)
	return distant{l}, err
}

// TestOperatorsOfOtherMachinesProveTheirKey: when all places are taken, a peer on another
// machine gets in by its key, and without CURVE not at all.
func TestOperatorsOfOtherMachinesProveTheirKey(t *testing.T) {
	t.Parallel()
	server, operator, client := zmtp.GenerateKeyPair(), zmtp.GenerateKeyPair(), zmtp.GenerateKeyPair()
	seen := newEvents()
	o := Options{
		MaxConnections: 1, Listen: listenDistant, Monitor: seen.Tell,
		Security: Security{CurveServer: true, CurveSecretKey: server.Secret, Authenticate: AllowKeys(operator.Public, client.Public)},
		Operator: func(p *Peer) bool { return p.PublicKey() == operator.Public },
	}
	router := bind(t, NewRouter, o)
	arrive := func(k zmtp.KeyPair) *Dealer {
		return dialled(t, NewDealer, Options{
			ReconnectInterval: ReconnectNever, Linger: LingerNone,
			Security: Security{CurveSecretKey: k.Secret, CurveServerKey: server.Public},
		}, router.LastEndpoint())
	}
	arrive(client)
	seen.Await(t, EventHandshakeSucceeded)
	arrive(client)
	if e := seen.Await(t, EventHandshakeFailed); !errors.Is(e.Err, ErrTooManyConnections) {
		t.Errorf("%+v", e)
	}
	arrive(operator)
	if e := seen.Await(t, EventHandshakeSucceeded); e.Peer.PublicKey() != operator.Public {
		t.Errorf("%v was accepted", e.Peer.PublicKey())
	}

	o.Security, o.Operator = Security{}, func(*Peer) bool { return true }
	open := bind(t, NewRouter, o)
	dialRaw(t, open.LastEndpoint()).Greet("DEALER", nil).Sync()
	dialRaw(t, open.LastEndpoint()).Ended()
	if e := seen.Await(t, EventAcceptFailed); !errors.Is(e.Err, ErrTooManyConnections) {
		t.Errorf("%+v", e)
	}
}
