package sockets

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"clustermap/internal/interop"
	"clustermap/zmtp"
)

// monitored is a socket whose monitor a test follows: ours, or libzmq's.
type monitored interface {
	bind(endpoint string) (bound string)
	unbind(endpoint string)
	connect(endpoint string)
	stop()
	next() told
}

// told is an event by libzmq's number and value.
type told struct{ Number, Value uint32 }

// Numbers that a course waits for.
const (
	numberClosed       = 0x0080
	numberDisconnected = 0x0200
	numberRetried      = 0x0004
	numberStopped      = 0x0400
	numberFailed       = 0x0800
)

// ours is our socket as monitored.
type ours struct {
	t      *testing.T
	events chan Event
	socket interface {
		Bind(context.Context, string) error
		Unbind(string) error
		Connect(string) error
		LastEndpoint() string
		Close() error
	}
}

func (o *ours) bind(endpoint string) string {
	if o.socket.Bind(testContext(o.t), endpoint) != nil {
		return ""
	}
	return o.socket.LastEndpoint()
}
func (o *ours) unbind(endpoint string)  { must(o.t, o.socket.Unbind(endpoint)) }
func (o *ours) connect(endpoint string) { must(o.t, o.socket.Connect(endpoint)) }
func (o *ours) stop()                   { must(o.t, o.socket.Close()) }
func (o *ours) next() told {
	for timeout := time.After(hang); ; {
		select {
		case e := <-o.events:
			if number, value := e.Code(); number != 0 { // 0: libzmq does not report it
				return told{uint32(number), value}
			}
		case <-timeout:
			o.t.Fatal("no further event")
		}
	}
}

// libzmq is libzmq's socket as monitored.
type libzmq struct{ p *interop.Process }

func (z libzmq) bind(endpoint string) string {
	var answer struct{ Endpoint string }
	z.p.Call(interop.Op{"op": "bind", "endpoint": endpoint}, &answer)
	return answer.Endpoint
}
func (z libzmq) unbind(endpoint string) {
	z.p.Call(interop.Op{"op": "unbind", "endpoint": endpoint}, nil)
}
func (z libzmq) connect(endpoint string) {
	z.p.Call(interop.Op{"op": "connect", "endpoint": endpoint}, nil)
}
func (z libzmq) stop() { z.p.Call(interop.Op{"op": "stop"}, nil) }
func (z libzmq) next() (e told) {
	z.p.Event("monitor", &e)
	return e
}

// metadataFault is the failure of a handshake whose metadata we do not accept. libzmq
// (4.3) then only reports the end of the connection.
var metadataFault = told{0x2000, zmtp.CodeInvalidMetadata}.String()

func (e told) String() string { return fmt.Sprintf("%04x:%x", e.Number, e.Value) }

// until collects events up to one of the given numbers, or to a handshake that
// failed, as text to compare. Parts that only libzmq has are left out: descriptors, the
// error of a connection that ended in its handshake, CLOSED before a BIND_FAILED, and the
// DISCONNECTED behind a handshake that failed. The random part of a wait is too.
func until(m monitored, last ...uint32) string {
	_, us := m.(*ours)
	var all []string
	opening := false
	for {
		e := m.next()
		switch e.Number {
		case 0x0001, 0x0020:
			opening = true
			e.Value = 0
		case 0x0008, numberClosed, numberFailed:
			e.Value = 0
		case 0x1000:
			opening = false
		case numberRetried:
			if e.Value >= 20 && e.Value < 40 {
				e.Value = 20
			}
		case 0x0010:
			all = nil
		case numberDisconnected:
			e.Value = 0
			if !us && opening {
				if text := all[len(all)-1]; text == (told{Number: 0x0001}.String()) || text == (told{Number: 0x0020}.String()) {
					all = append(all, metadataFault)
				}
				return strings.Join(all, " ")
			}
		}
		all = append(all, e.String())
		if us && opening && (e.Number == numberFailed || e.Number >= 0x2000) {
			return strings.Join(all, " ")
		}
		for _, n := range last {
			if e.Number == n {
				return strings.Join(all, " ")
			}
		}
	}
}

// bindingCourse runs the course of events of a bound ROUTER.
func bindingCourse(t *testing.T, m monitored) (course []string) {
	endpoint := m.bind(anyPort)
	note := func(what string, last ...uint32) {
		course = append(course, what+": "+until(m, last...))
	}
	note("bound", 0x0008)
	if m.bind(endpoint) != "" {
		t.Error("an endpoint in use was bound")
	}
	note("bound again", 0x0010)
	for _, c := range []struct {
		name string
		says []byte
	}{
		{"silent", nil},
		{"half a greeting", greeting(1)[:20]},
		{"no READY", greeting(1)},
		{"other mechanism", zmtp.AppendGreeting(nil, zmtp.Greeting{Major: 3, Minor: 1, Mechanism: "CURVE"})},
		{"wrong type", append(greeting(1), ready("PUB", nil)...)},
		{"bad metadata", append(greeting(1), zmtp.AppendCommand(nil, "READY", []byte("\x09Socke"))...)},
		{"other command", append(greeting(1), zmtp.AppendCommand(nil, "HELLO", nil)...)},
		{"good", append(greeting(1), ready("DEALER", nil)...)},
	} {
		r := dialRaw(t, endpoint)
		r.Send(c.says)
		switch c.name {
		case "silent", "half a greeting", "no READY":
			r.Conn.Close()
			note(c.name, numberDisconnected)
		case "good":
			note(c.name, 0x1000)
			r.Conn.Close()
			note("and gone", numberDisconnected)
		default:
			note(c.name, numberDisconnected)
		}
	}
	m.unbind(endpoint)
	note("unbound", numberClosed)
	m.stop()
	note("stopped", numberStopped)
	return course
}

// connectingCourse runs the course of events of a connecting DEALER.
func connectingCourse(t *testing.T, m monitored) (course []string) {
	note := func(what string, last ...uint32) {
		course = append(course, what+": "+until(m, last...))
	}
	endpoint, accept := listenRaw(t)
	m.connect(endpoint)
	accept().Conn.Close()
	note("closed in the handshake", numberDisconnected)
	note("again", numberRetried)
	r := accept()
	r.Greet("ROUTER", nil)
	note("good", 0x1000)
	r.Conn.Close()
	note("and gone", numberRetried)
	r = accept()
	r.Send(greeting(1), ready("SUB", nil))
	note("wrong type", numberDisconnected)
	m.connect(freePort(t))
	note("nobody there", numberRetried)
	return course
}

// TestInteropMonitor: our monitor reports the events of libzmq's, in the same order and
// with the same values, for the same course of events.
func TestInteropMonitor(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		kind   string
		course func(*testing.T, monitored) []string
		open   func(Options) *ours
	}{
		{"ROUTER", bindingCourse, func(o Options) *ours { return &ours{socket: open(t, NewRouter, o)} }},
		{"DEALER", connectingCourse, func(o Options) *ours { return &ours{socket: open(t, NewDealer, o)} }},
	} {
		t.Run(c.kind, func(t *testing.T) {
			p := interop.Python(t, "zmq_monitor.py", "--type", c.kind, "--option", "RECONNECT_IVL=20", "--option", "RECONNECT_IVL_MAX=1000")
			want := c.course(t, libzmq{p})
			events := make(chan Event, 1000)
			// As libzmq, it gives up a peer of the wrong type, whose further attempts
			// would be reported among others.
			mine := c.open(Options{Linger: LingerNone, ReconnectInterval: 20 * time.Millisecond, ReconnectIntervalMax: time.Second,
				ReconnectStop: ReconnectStopOnProtocolError, Monitor: func(e Event) { events <- e }})
			mine.t, mine.events = t, events
			got := c.course(t, mine)
			if !reflect.DeepEqual(got, want) {
				t.Errorf("told\n%s\nlibzmq\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
		})
	}
}
