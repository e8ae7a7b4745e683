package sockets

import (
	"sync"
	"sync/atomic"
)

// MonitorChan is a monitor that keeps a socket's events in a channel:
//
//	m := sockets.NewMonitorChan(64)
//	s, err := sockets.NewDealer(sockets.Options{Monitor: m.Tell})
//	…
//	for e := range m.Events() {
//		…
//	}
//
// The channel is bounded. A monitor must not hold up the connections that it
// watches, so an event that finds it full is dropped, and counted. When the
// socket is closed, the channel is, behind the events that it holds. It serves
// one socket. All methods are safe for concurrent use.
type MonitorChan struct {
	events  chan Event
	dropped atomic.Uint64

	mu     sync.RWMutex // held to send; exclusively to close
	closed bool
}

// NewMonitorChan returns a monitor with room for so many events, at least one.
func NewMonitorChan(size int) *MonitorChan {
	return &MonitorChan{events: make(chan Event, max(size, 1))}
}

// Tell is for Options.Monitor. It never waits.
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

// Events returns the channel. It is closed once the socket is, behind the
// events that are in it.
func (m *MonitorChan) Events() <-chan Event { return m.events }

// Dropped returns how many events found no room.
func (m *MonitorChan) Dropped() uint64 { return m.dropped.Load() }
