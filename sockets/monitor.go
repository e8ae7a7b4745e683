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

	mu     sync.RWMutex // read-locked to send, locked to close
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
	if e.Kind != MonitorStopped {
		m.mu.RLock()
		defer m.mu.RUnlock()
		m.put(e)
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.closed {
		m.put(e)
		m.closed = true
		close(m.events)
	}
}

// put adds an event if there is room. mu must be held.
func (m *MonitorChan) put(e Event) {
	if m.closed {
		m.dropped.Add(1)
		return
	}
	select {
	case m.events <- e:
	default:
		m.dropped.Add(1)
	}
}

// Events returns the channel. When the socket is closed, the channel is closed
// after the events that it holds.
func (m *MonitorChan) Events() <-chan Event { return m.events }

// Dropped returns the number of events that were dropped because the channel
// was full.
func (m *MonitorChan) Dropped() uint64 { return m.dropped.Load() }
