package sockets

import (
	"context"
	"errors"
	"testing"

	"clustermap/zmtp"
)

// TestSendToForeignPeer: a socket refuses to send to a peer of another socket,
// or to no peer at all, and nothing reaches that peer.
func TestSendToForeignPeer(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	home, stranger := bind(t, NewRouter, Options{}), bind(t, NewRouter, Options{})
	dealer := open(t, NewDealer, Options{})
	must(t, dealer.Connect(home.LastEndpoint()))
	must(t, dealer.Send(ctx, []byte("hello")))
	_, peer, err := home.RecvFrom(ctx)
	must(t, err)
	for name, p := range map[string]*Peer{"another socket's": peer, "nil": nil, "zero": {}} {
		if err := stranger.SendTo(ctx, p, []byte("x")); !errors.Is(err, ErrForeignPeer) || !errors.Is(err, ErrUnroutable) {
			t.Errorf("SendTo, %s peer: %v", name, err)
		}
		if err := stranger.sendWire(ctx, p, wire("x"), 1, nil); !errors.Is(err, ErrForeignPeer) {
			t.Errorf("SendWire, %s peer: %v", name, err)
		}
		if err := stranger.sendWire(ctx, p, nil, 0, nil); !errors.Is(err, ErrForeignPeer) {
			t.Errorf("SendWire of nothing, %s peer: %v", name, err)
		}
	}
	// The dealer gets its own router's message first: nothing came before it.
	must(t, home.SendTo(ctx, peer, []byte("from home")))
	wantRecv(t, func() (Message, error) { return dealer.Recv(ctx) }, "from home")

	xpub := bind(t, NewXPub, Options{XPubManual: true})
	for name, p := range map[string]*Peer{"another socket's": peer, "zero": {}} {
		if err := xpub.SubscribePeer(p, "topic"); !errors.Is(err, ErrForeignPeer) {
			t.Errorf("SubscribePeer, %s peer: %v", name, err)
		}
		if err := xpub.UnsubscribePeer(p, "topic"); !errors.Is(err, ErrForeignPeer) {
			t.Errorf("UnsubscribePeer, %s peer: %v", name, err)
		}
	}
}

// TestPeerCannotAnnounceGrantedProperties: a peer's own word counts for names with X- alone, and
// never over the authenticator's.
func TestPeerCannotAnnounceGrantedProperties(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	router := bind(t, NewRouter, Options{Security: Security{Authenticate: func(context.Context, AuthRequest) (User, error) {
		return User{ID: "guest", Metadata: map[string]string{"Group": "visitors", "X-Quota": "1", "Identity": "known"}}, nil
	}}})
	r := dialRaw(t, router.LastEndpoint())
	properties := zmtp.AppendProperty(nil, "Socket-Type", []byte("DEALER"))
	for name, value := range map[string]string{
		"Role": "admin", "Group": "admins", "X-Quota": "1000000", "x-quota": "1000000", "X-Colour": "blue",
		"User-Id": "root", "Peer-Address": "10.0.0.1", "Identity": "claimed", "Routing-Id": "claimed",
	} {
		properties = zmtp.AppendProperty(properties, name, []byte(value))
	}
	r.Send(greeting(1), zmtp.AppendCommand(nil, "READY", properties), wire("hello"))
	_, peer, err := router.RecvFrom(ctx)
	must(t, err)
	for name, want := range map[string]string{
		"Role": "", "role": "", "Group": "visitors", "GROUP": "visitors", "X-Quota": "1", "x-quota": "1", "X-Colour": "blue",
		"User-Id": "guest", "Peer-Address": "127.0.0.1", "Identity": "known", "Routing-Id": "known", "Socket-Type": "DEALER",
	} {
		if got, _ := peer.Property(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	if got := string(peer.Identity()); got != "claimed" {
		t.Errorf("the router addresses it as %q", got) // routing goes by the identity that the peer announced
	}
}
