package sockets

import (
	"context"
	"errors"
	"reflect"

	"clustermap/internal/engine"
	"clustermap/internal/option"
	"clustermap/internal/queue"
	"clustermap/zmtp"
)

// Options returns a copy of the options that are in effect, with the defaults filled
// in. A number that is not limited is Unlimited, and an option that does not apply to
// the socket's type is zero. The copy contains the secrets of [Options.Security] and [Options.SOCKSPassword].
func (s *socket) Options() Options { return s.opts().shown(s.core.Kind()) }

// SetOptions changes options of the socket. It calls change with a copy of the options
// that are in effect, as Options returns it, validates the changed copy, and puts it into
// effect. Zero selects the default, as in a constructor.
//
// If a value is invalid, or belongs to an option that cannot change, SetOptions
// changes nothing. The error then joins an [*OptionError] for each of these options.
// The options that cannot change are Conflate, Inproc and Monitor. If the
// socket is closed, the error is ErrClosed.
//
// Each option says when a change takes effect, see the column "Change" in
// docs/OPTIONS.md. In general:
//
//   - Time limits, high-water marks, Linger, and options about messages and subscriptions
//     take effect at once, also for the peers that are connected. A lower high-water mark
//     drops nothing: the queue takes messages again when it is below. A higher one lets
//     calls that wait for room go on. Calls in progress keep their time limit.
//   - Options that peers agree upon when a connection begins, such as Identity, Security
//     and heartbeats, apply to later connections. These include those that replace a lost
//     connection and those that a bound endpoint accepts; in libzmq they do not.
//   - Immediate, and the options that package net needs to listen, apply to later calls
//     of Connect and Bind.
//
// Concurrent calls of SetOptions are executed one after another. change must not call
// methods of the socket.
func (s *socket) SetOptions(change func(*Options)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.core.Open(); err != nil {
		return err
	}
	was, kind := s.opts(), s.core.Kind()
	shown, wanted := was.shown(kind), was.shown(kind)
	change(&wanted)
	wanted = wanted.clone()
	given := s.given.Load().clone()
	err := option.Adopt("sockets", &given, &shown, &wanted, fixedOptions, reflect.TypeFor[Security]())
	now, invalid := given.inEffect(kind)
	if err := errors.Join(err, invalid); err != nil {
		return err
	}
	s.given.Store(&given)
	s.current.Store(&now)
	s.core.SetConfig(s.config(kind, &now), func() {
		if s.changed != nil {
			s.changed(&now)
		}
	})
	return nil
}

// optionsOf returns the options in effect when a connection began.
func optionsOf(peer *engine.Peer) *Options { return peer.Config().Of.(*Options) }

// config returns what the engine needs of options that are in effect.
func (s *socket) config(kind zmtp.SocketType, o *Options) *engine.Config {
	sec := &o.Security
	c := &engine.Config{
		Of:       o,
		Identity: o.Identity, Metadata: o.metadata(), MinVersion: o.MinVersion,
		Security: engine.Security{
			Mechanism: sec.mechanism,
			Authenticate: func(c zmtp.Credentials, address string) (func(context.Context) engine.Verdict, error) {
				return s.authenticate(sec, c, address)
			},
			Authenticates: func() bool { return s.authenticator(sec) != nil },
			CurveServer:   sec.role() == roleCurveServer, CurveClient: sec.role() == roleCurveClient, ServerKeys: 1 + len(sec.CurveMoreServerKeys),
		},
		Inproc: (*engine.Names)(o.Inproc), Link: o.link(),

		Send: o.sendLimits(), Recv: o.recvLimits(), SendTotalBytes: o.SendTotalBytes, RecvTotalBytes: o.RecvTotalBytes,
		MaxIncompleteBytes: o.MaxIncompleteBytes, MaxConnections: o.MaxConnections, MaxHandshakes: o.MaxHandshakes,
		MaxMessageSize: o.MaxMessageSize, Conflate: o.Conflate, Immediate: o.Immediate,
		ConnectTimeout: o.ConnectTimeout, HandshakeTimeout: o.HandshakeTimeout,
		HeartbeatInterval: o.HeartbeatInterval, HeartbeatTimeout: o.HeartbeatTimeout, HeartbeatTTL: o.HeartbeatTTL,
		SendTimeout: o.SendTimeout, RecvTimeout: o.RecvTimeout, Linger: o.Linger, BusyPoll: o.BusyPoll,
		ReconnectInterval: o.ReconnectInterval, ReconnectIntervalMax: o.ReconnectIntervalMax, ReconnectStop: engine.Stops(o.ReconnectStop),

		Parting: o.DisconnectMessage, Hiccup: o.HiccupMessage,
		Notices: len(o.DisconnectMessage) > 0 || o.Notify&notifyBoth != 0,
	}
	if kind == zmtp.TypePush || kind == zmtp.TypeDealer {
		c.Send.Bytes = min(c.Send.Bytes, o.SendTotalBytes) // with a single peer there is no other limit
	}
	if len(o.HelloMessage) > 0 {
		c.Hello = zmtp.AppendMessage(nil, o.HelloMessage)
	}
	if monitor := o.Monitor; monitor != nil {
		c.Monitor = func(e engine.Event) {
			monitor(Event{EventKind(e.Kind), e.Endpoint, e.Remote, (*Peer)(e.Peer), e.Err, e.Retry})
		}
	}
	if operator := o.Operator; operator != nil {
		c.Operator = func(p *engine.Peer) bool { return operator((*Peer)(p)) }
	}
	return c
}

// fixedOptions are the options that cannot change, and why.
var fixedOptions = map[string]string{
	"Conflate": "decides how queues store their messages",
	"Inproc":   "is where the socket's names are bound",
	"Monitor":  "must receive the events of a connection from first to last",
}

// clone returns a copy of o that shares no slices and maps with it.
func (o *Options) clone() Options { return option.Clone(o) }

// shown returns a copy of options that are in effect, for the application. Those that do
// not apply to the type are zero, so that the copy is valid for another socket of it.
func (o *Options) shown(kind zmtp.SocketType) Options {
	c := o.clone()
	for field, f := range reflect.ValueOf(&c).Elem().Fields() {
		if !optionTypes[field.Name].has(kind) {
			f.SetZero()
			continue
		}
		if (f.Type() == reflect.TypeFor[int]() || f.Type() == reflect.TypeFor[int64]()) && f.Int() == unbounded {
			f.SetInt(Unlimited)
		}
	}
	return c
}

// inEffect returns the options that take effect for a socket of the given type: a
// validated copy of o with the defaults filled in.
func (o Options) inEffect(kind zmtp.SocketType) (Options, error) {
	foreign := o.foreign(kind)
	switch {
	case (kind == zmtp.TypeSub || kind == zmtp.TypeXSub) && o.Linger == 0:
		o.Linger = LingerNone
	case kind == zmtp.TypeStream && o.Notify == 0:
		o.Notify = notifyBoth
	case (kind == zmtp.TypePush || kind == zmtp.TypeDealer) && o.SendTotalBytes == 0 && (o.SendHWMBytes == Unlimited || o.SendHWMBytes > DefaultSendTotal):
		o.SendTotalBytes = o.SendHWMBytes // one queue may be as long as it was asked to be
	}
	o, err := o.withDefaults()
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		foreign = append(foreign, joined.Unwrap()...)
	}
	return o, errors.Join(foreign...)
}

// sendLimits and recvLimits return the high-water marks.
func (o *Options) sendLimits() queue.HWM {
	return queue.HWM{Messages: o.SendHWM, Bytes: o.SendHWMBytes}
}
func (o *Options) recvLimits() queue.HWM {
	return queue.HWM{Messages: o.RecvHWM, Bytes: o.RecvHWMBytes}
}
