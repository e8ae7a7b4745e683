package interop

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"clustermap/internal/interop"
	"clustermap/sockets"
	"clustermap/zmtp"
)

// The methods that sockets of some types have.
type (
	canSend interface {
		Send(context.Context, ...[]byte) error
	}
	canReceive interface {
		Recv(context.Context) (sockets.Message, error)
	}
	canSubscribe interface {
		Subscribe(topic string) error
		Unsubscribe(topic string) error
	}
	canAwait interface {
		WaitSubscribers(ctx context.Context, topic string, n int) error
	}
)

// connect opens both ends of a link.
func (m *matrix) connect(t *testing.T, l *matrixLink, o sockets.Options, monitored bool) socket {
	t.Helper()
	ctx := timeLimit(t)
	// A ROUTER that sends first can tell only so that its peer is there.
	o.Mandatory = l.ours.socketType == zmtp.TypeRouter
	o.Linger = sockets.LingerNone
	if identified(l.ours.socketType) {
		o.Identity = []byte(ourIdentity)
	}
	l.security.ours.options(&o, l.security.fault)
	ours, err := l.ours.open(o)
	check(t, err)
	t.Cleanup(func() { check(t, ours.Close()) })
	if l.ours.socketType == zmtp.TypeSub || l.ours.socketType == zmtp.TypeXSub {
		subscription(t, ours, true)
	}
	options := l.security.theirs.theirOptions(l.security.fault)
	if identified(l.theirs.socketType) {
		options["ROUTING_ID"] = theirIdentity
	}
	endpoint := l.endpoint
	if l.who == weBind {
		check(t, ours.Bind(ctx, endpoint))
		endpoint = ours.LastEndpoint()
	}
	var theirs struct{ Endpoint string }
	check(t, m.call(ctx, "open", l, interop.Op{
		"type": l.theirs.socketType.String(), "bind": l.who == theyBind, "endpoint": endpoint,
		"options": options, "monitored": monitored,
	}, &theirs))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), hang)
		defer cancel()
		if err := m.call(ctx, "close", l, nil, nil); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	if l.who == theyBind {
		check(t, ours.Connect(theirs.Endpoint))
	}
	return ours
}

// subscription subscribes our socket to everything, or takes that back: an XSUB
// by a message.
func subscription(t *testing.T, s socket, wanted bool) {
	t.Helper()
	x, isX := s.(*sockets.XSub)
	switch {
	case isX && wanted:
		check(t, x.Send(timeLimit(t), []byte{1}))
	case isX:
		check(t, x.Send(timeLimit(t), []byte{0}))
	case wanted:
		check(t, s.(canSubscribe).Subscribe(""))
	default:
		check(t, s.(canSubscribe).Unsubscribe(""))
	}
}

// beacon is the message that libzmq's PUB sends until it hears that we receive it.
const beacon = "beacon"

// exchange runs one link.
func (m *matrix) exchange(t *testing.T, l *matrixLink) {
	ctx := timeLimit(t)
	ours := m.connect(t, l, sockets.Options{}, false)
	played := m.start("play", l, interop.Op{
		"shapes": matrixShapes(), "begins": !l.weBegin(), "sends": l.theySend(), "receives": l.weSend(),
		"lead":     lead(l.theirs.socketType, l.ours.socketType, ourIdentity),
		"notified": l.theirs.socketType == zmtp.TypeXPub,
	})
	// A fault of the program's ends our waiting for its messages.
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	over := make(chan error, 1)
	var result struct{ Received int }
	go func() {
		err := played.Wait(ctx, &result)
		if err != nil {
			cancel(err)
		}
		over <- err
	}()
	// In any case nothing of this link is left behind.
	defer func() {
		cancel(nil)
		<-over
	}()
	received := 0
	fail := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v (%v)", what, err, context.Cause(ctx))
		}
	}
	expect := func(want [][]byte) {
		t.Helper()
		got, err := ours.(canReceive).Recv(ctx)
		for err == nil && len(got) == 1 && string(got[0]) == beacon {
			got, err = ours.(canReceive).Recv(ctx)
		}
		fail("receive", err)
		wantFrames(t, got, want)
	}

	switch l.ours.socketType {
	case zmtp.TypePub, zmtp.TypeXPub:
		fail("subscription", ours.(canAwait).WaitSubscribers(ctx, "", 1))
	}
	if l.ours.socketType == zmtp.TypeXPub {
		expect([][]byte{{1}})
	}
	if l.theirs.socketType == zmtp.TypePub {
		got, err := ours.(canReceive).Recv(ctx)
		fail("beacon", err)
		if string(bytes.Join(got, nil)) != beacon {
			t.Fatalf("received %q", got)
		}
		fail("seen", m.call(ctx, "seen", l, nil, nil))
	}
	head := lead(l.ours.socketType, l.theirs.socketType, theirIdentity)
	send := func(i int) {
		t.Helper()
		fail("send", sendRouted(ctx, ours.(canSend), l.message("ours", i, head)))
	}
	for i := range matrixShapes() {
		if l.weSend() && l.weBegin() {
			send(i)
		}
		if l.theySend() {
			expect(l.message("theirs", i, head))
			received++
		}
		if l.weSend() && !l.weBegin() {
			send(i)
		}
	}
	if l.ours.socketType == zmtp.TypeSub || l.ours.socketType == zmtp.TypeXSub {
		subscription(t, ours, false)
	}
	if l.ours.socketType == zmtp.TypeXPub {
		expect([][]byte{{0}})
	}
	err := <-over
	over <- err // for the deferred one
	fail("libzmq", err)
	m.links.Add(1)
	m.exchanges.Add(int64(received + result.Received))
}

// sendRouted sends a message; a ROUTER tries until its peer is there.
func sendRouted(ctx context.Context, s canSend, frames [][]byte) error {
	for {
		err := s.Send(ctx, frames...)
		if !errors.Is(err, sockets.ErrUnroutable) {
			return err
		}
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			return err
		}
	}
}
