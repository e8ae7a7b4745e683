package sockets

import (
	"sync"
	"sync/atomic"
)

// MonitorChan is a monitor that delivers the events of one socket to a channel:
//
//	m := sockets.NewMonitorChan(64)
//	s, err := sockets.NewDealer(sockets.Options{Monitor: m.Tell})
//	…
//	for e := range m.Events() {
//		…
//	}
//
// A monitor must not delay the connections that it observes, so an event is
// dropped and counted if the channel is full. The channel is closed when the
// socket is closed. All methods are safe for concurrent use.
type MonitorChan struct {
	events  chan Event
	dropped atomic.Uint64

	mu     sync.Mutex // nothing is sent after the channel is closed
	closed bool
}

// NewMonitorChan returns a MonitorChan whose channel has a capacity of size
// events, but at least one.
func NewMonitorChan(size int) *MonitorChan {
	return &MonitorChan{events: make(chan Event, max(size, 1))}
}

// Tell adds an event to the channel. Set [Options.Monitor] to it. Tell never
// waits.
func (m *MonitorChan) Tell(e Event) {
	m.mu.Lock()
	defer m.mu.Unlock()
	stopped := e.Kind == EventMonitorStopped
	if m.closed && stopped {
		return
	}
	events := m.events
	if m.closed {
		events = nil // there is no room any more
	}
	select {
	case events <- e:
	default:
		m.dropped.Add(1)
	}
	if stopped {
		m.closed = true
		close(m.events)
	}
}

// Events returns the channel. When the socket is closed, the channel is closed
// after the events that it holds.
func (m *MonitorChan) Events() <-chan Event { return m.events }

// Dropped returns the number of events that were dropped because the channel
// was full.
func (m *MonitorChan) Dropped() uint64 { return m.dropped.Load() }
