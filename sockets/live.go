package sockets

import (
	"errors"
	"reflect"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"clustermap/internal/option"
	"clustermap/internal/queue"
	"clustermap/zmtp"
)

// settings holds the options that are in effect. They can change at any time, and are
// read without a lock. The options that calls need for each message are kept apart, so
// that a message costs no more than if the options were fixed: here, in atomic variables,
// and otherwise under the mutex that the call takes anyway.
//
// The options are behind atomic pointers, so that formatting a socket with package fmt does
// not show the secrets in them.
type settings struct {
	current atomic.Pointer[Options] // the Options that it points to do not change

	sendTimeout, recvTimeout atomic.Int64 // SendTimeout and RecvTimeout
	maxMessage               atomic.Int64 // MaxMessageSize

	mu    sync.Mutex              // held by SetOptions
	given atomic.Pointer[Options] // by the application: without defaults; changes under mu
}

// store puts options into effect.
func (t *settings) store(o *Options) {
	t.current.Store(o)
	t.sendTimeout.Store(int64(o.SendTimeout))
	t.recvTimeout.Store(int64(o.RecvTimeout))
	t.maxMessage.Store(o.MaxMessageSize)
}

// sendLimit and recvLimit return how long a call waits.
func (t *settings) sendLimit() queue.Limit {
	return queue.Limit{Patience: time.Duration(t.sendTimeout.Load())}
}

func (t *settings) recvLimit() queue.Limit {
	return queue.Limit{Patience: time.Duration(t.recvTimeout.Load())}
}

// opts returns the options in effect, which must not be changed. Code that reads
// several of them for one decision calls it once.
func (s *socket) opts() *Options { return s.settings.current.Load() }

// Options returns a copy of the options that are in effect, with the defaults filled
// in. A number that is not limited is Unlimited, and an option that does not apply to
// the socket's type is zero. The copy contains the secrets of [Options.Security] and [Options.SOCKSPassword].
func (s *socket) Options() Options { return s.opts().shown(s.kind) }

// SetOptions changes options of the socket. It calls change with a copy of the options
// that are in effect, as Options returns it, validates the changed copy, and puts it into
// effect. Zero selects the default, as in a constructor.
//
// If a value is invalid, or belongs to an option that cannot change, SetOptions
// changes nothing. The error then joins an [*OptionError] for each of these options.
// The options that cannot change are Conflate, Inproc, Scan, Prepare and Monitor. If the
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
	t := &s.settings
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := s.open(); err != nil {
		return err
	}
	was := s.opts()
	shown, wanted := was.shown(s.kind), was.shown(s.kind)
	change(&wanted)
	wanted = wanted.clone()
	given := t.given.Load().clone()
	err := adopt(&given, &shown, &wanted)
	now, invalid := given.inEffect(s.kind)
	if err := errors.Join(err, invalid); err != nil {
		return err
	}
	t.given.Store(&given)
	t.store(&now)
	s.apply(was, &now)
	return nil
}

// fixedOptions are the options that cannot change, and why.
var fixedOptions = map[string]string{
	"Conflate": "decides how queues store their messages",
	"Inproc":   "is where the socket's names are bound",
	"Prepare":  "may be processing messages of connections",
	"Scan":     "may be processing messages of connections",
	"Monitor":  "must receive the events of a connection from first to last",
}

// adopt copies to given the fields that differ between shown and wanted. The other
// fields keep their given values, so that a default that depends on another field
// continues to depend on it. It returns an error for each fixed option that differs.
func adopt(given, shown, wanted *Options) error {
	var errs []error
	var walk func(given, shown, wanted reflect.Value)
	walk = func(given, shown, wanted reflect.Value) {
		for i := range given.NumField() {
			g, s, w := given.Field(i), shown.Field(i), wanted.Field(i)
			if g.Type() == reflect.TypeFor[Security]() {
				walk(g, s, w)
				continue
			}
			if same(s, w) {
				continue
			}
			name := given.Type().Field(i).Name
			if why, fixed := fixedOptions[name]; fixed {
				errs = append(errs, option.New("sockets", name, "%s", "cannot change: it "+why))
				continue
			}
			g.Set(w)
		}
	}
	walk(reflect.ValueOf(given).Elem(), reflect.ValueOf(shown).Elem(), reflect.ValueOf(wanted).Elem())
	return errors.Join(errs...)
}

// same reports whether two fields have the same value. Functions are the same only if
// they are copies of one function value.
func same(a, b reflect.Value) bool {
	switch a.Kind() {
	case reflect.Func:
		return *(*unsafe.Pointer)(a.Addr().UnsafePointer()) == *(*unsafe.Pointer)(b.Addr().UnsafePointer())
	case reflect.Pointer:
		return a.Pointer() == b.Pointer()
	}
	return reflect.DeepEqual(a.Interface(), b.Interface())
}

// clone returns a copy of o that shares no slices and maps with it.
func (o *Options) clone() Options {
	c := *o
	for _, f := range reflect.ValueOf(&c).Elem().Fields() {
		switch {
		case f.Kind() == reflect.Slice && !f.IsNil():
			f.Set(reflect.AppendSlice(reflect.MakeSlice(f.Type(), 0, f.Len()), f))
		case f.Kind() == reflect.Map && !f.IsNil():
			m := reflect.MakeMapWithSize(f.Type(), f.Len())
			for k, v := range f.Seq2() {
				m.SetMapIndex(k, v)
			}
			f.Set(m)
		}
	}
	return c
}

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

// apply makes new options take effect where they are not read from settings.
func (s *socket) apply(was, now *Options) {
	s.in.SetLimits(now.recvLimits(), now.RecvTotalBytes)
	s.admission.set(now)
	s.incomplete.setLimit(now)
	s.total.set(now.SendTotalBytes)
	for _, p := range s.list() {
		p.relimit(now)
	}
	s.pattern.changed(was, now)
	s.in.Tell()
}

// relimit sets the high-water marks of a pipe's queues. Over inproc, a queue has those
// of both sides together.
func (p *pipe) relimit(now *Options) {
	if p.out.SetLimits(p.socket.sendLimits(now)) {
		p.hasRoomAgain()
	}
	peer := p.peer.Load()
	if peer == nil || peer.far == nil {
		return
	}
	far := peer.far.pipe
	if far.out.SetFarLimits(now.recvLimits()) {
		far.hasRoomAgain()
	}
	p.socket.in.Report(&p.in, far.out.Limits().Low().Messages)
	far.socket.in.Report(&far.in, p.out.Limits().Low().Messages)
}

// hasRoomAgain notifies callers that may wait for room in a pipe that was full.
func (p *pipe) hasRoomAgain() {
	p.socket.pattern.roomy(p)
	p.socket.in.Tell()
}

// sendLimits and recvLimits return the high-water marks. A PUSH or DEALER with a single
// peer has no other limit.
func (s *socket) sendLimits(o *Options) hwm {
	limits := o.sendLimits()
	if s.kind == zmtp.TypePush || s.kind == zmtp.TypeDealer {
		limits.Bytes = min(limits.Bytes, o.SendTotalBytes)
	}
	return limits
}

func (o *Options) sendLimits() hwm { return hwm{Messages: o.SendHWM, Bytes: o.SendHWMBytes} }
func (o *Options) recvLimits() hwm { return hwm{Messages: o.RecvHWM, Bytes: o.RecvHWMBytes} }
