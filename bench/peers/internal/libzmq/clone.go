package libzmq

/*
#include <errno.h>
#include <stdlib.h>
#include <zmq.h>
#include "clone.h"
*/
import "C"

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"time"
	"unsafe"
)

// The Clone pattern of the guide: a server, a publisher of updates and a replica, in C.
// Queues are as long as is usual where rates matter, and a publisher waits for its
// subscribers instead of dropping.
const (
	cloneHWM  = 100_000 // messages
	cloneWait = 100 * time.Millisecond
	// cloneBlock is how many bytes of records go between Go and C at once.
	cloneBlock = 64 << 10
	// cloneHeader is the bytes of a record's two lengths.
	cloneHeader = 8
)

// DEALER is the socket type with which a client of Clone asks for a snapshot.
const DEALER Type = C.ZMQ_DEALER

// cloneSocket makes a socket that binds, or connects if endpoint is one of another
// socket.
func cloneSocket(c Context, t Type, endpoint string) (Socket, string, error) {
	s, err := c.Socket(t)
	if err != nil {
		return s, "", err
	}
	for _, option := range []int{C.ZMQ_SNDHWM, C.ZMQ_RCVHWM} {
		if err := s.setInt(option, cloneHWM); err != nil {
			return s, "", err
		}
	}
	if err := s.setInt(C.ZMQ_LINGER, 0); err != nil {
		return s, "", err
	}
	if endpoint != "" {
		return s, endpoint, s.Connect(endpoint)
	}
	if t == XPUB {
		if err := s.NoDrop(); err != nil {
			return s, "", err
		}
	}
	endpoint, err = s.Bind("tcp://127.0.0.1:*")
	return s, endpoint, err
}

// ServeClone runs a server until it fails. ready is called with its endpoints: snapshots,
// updates, collector.
func ServeClone(ready func(endpoints ...string)) error {
	runtime.LockOSThread()
	c := NewContext()
	var sockets []Socket
	var endpoints []string
	for _, t := range []Type{ROUTER, XPUB, PULL} {
		s, endpoint, err := cloneSocket(c, t, "")
		if err != nil {
			return err
		}
		sockets, endpoints = append(sockets, s), append(endpoints, endpoint)
	}
	ready(endpoints...)
	return fmt.Errorf("the server ended: %w", result("clone_serve", C.clone_serve(sockets[0].p, sockets[1].p, sockets[2].p)))
}

// ClonePublisher sends updates to a server. It is for one goroutine, which stays on its
// thread.
type ClonePublisher struct {
	push  Socket
	block []byte
}

// NewClonePublisher connects to the server with these endpoints.
func NewClonePublisher(endpoints []string) (*ClonePublisher, error) {
	runtime.LockOSThread()
	s, _, err := cloneSocket(NewContext(), PUSH, endpoints[2])
	return &ClonePublisher{push: s}, err
}

// Set sends copies of a key and its value, or keeps them until there is more to send.
func (p *ClonePublisher) Set(key string, value []byte) error {
	start := len(p.block)
	p.block = binary.NativeEndian.AppendUint32(p.block, uint32(len(key)))
	p.block = binary.NativeEndian.AppendUint32(p.block, uint32(len(value)))
	p.block = append(append(p.block, key...), value...)
	if 2*len(p.block)-start > cloneBlock {
		return p.Push()
	}
	return nil
}

// Push sends the buffered updates.
func (p *ClonePublisher) Push() error {
	if len(p.block) == 0 {
		return nil
	}
	rc := C.clone_send(p.push.p, unsafe.Pointer(&p.block[0]), C.size_t(len(p.block)))
	p.block = p.block[:0]
	return result("clone_send", rc)
}

// CloneReplica is a replica of a server's map. It is for one goroutine, which stays on its
// thread.
type CloneReplica struct {
	sub      Socket
	table    *C.struct_clone_table
	sequence C.int64_t
	block    []byte
}

// JoinClone connects to the server with these endpoints and takes its map.
func JoinClone(ctx context.Context, endpoints []string) (*CloneReplica, error) {
	runtime.LockOSThread()
	c := NewContext()
	dealer, _, err := cloneSocket(c, DEALER, endpoints[0])
	if err != nil {
		return nil, err
	}
	sub, _, err := cloneSocket(c, SUB, endpoints[1])
	if err != nil {
		return nil, err
	}
	if err := sub.Subscribe(""); err != nil {
		return nil, err
	}
	r := &CloneReplica{sub: sub, table: C.clone_table_new(), block: make([]byte, cloneBlock)}
	for {
		// Until the subscription is in effect nothing comes; afterwards, a heartbeat.
		rc := C.clone_join(sub.p, dealer.p, r.table, &r.sequence, C.int(time.Minute.Milliseconds()))
		if rc != C.EAGAIN || ctx.Err() != nil {
			return r, errors.Join(result("clone_join", rc), ctx.Err())
		}
	}
}

// Receive calls see with each update that comes, lent, until see returns false.
func (r *CloneReplica) Receive(ctx context.Context, see func(key, value []byte) bool) error {
	for ctx.Err() == nil {
		var size C.size_t
		rc := C.clone_receive(r.sub.p, r.table, &r.sequence, C.int(cloneWait.Milliseconds()),
			unsafe.Pointer(&r.block[0]), C.size_t(len(r.block)), &size)
		if rc == C.EAGAIN {
			continue
		}
		if rc != 0 {
			return result("clone_receive", rc)
		}
		for b := r.block[:size]; len(b) > 0; {
			keySize, valueSize := binary.NativeEndian.Uint32(b), binary.NativeEndian.Uint32(b[4:])
			key := b[cloneHeader : cloneHeader+keySize]
			b = b[cloneHeader+keySize:]
			if !see(key, b[:valueSize]) {
				return nil
			}
			b = b[valueSize:]
		}
	}
	return ctx.Err()
}

// Get returns a copy of a value.
func (r *CloneReplica) Get(key string) ([]byte, bool) {
	k := C.CString(key)
	defer C.free(unsafe.Pointer(k))
	var size C.size_t
	value := C.clone_table_get(r.table, k, C.size_t(len(key)), &size)
	if value == nil {
		return nil, false
	}
	return C.GoBytes(value, C.int(size)), true
}
