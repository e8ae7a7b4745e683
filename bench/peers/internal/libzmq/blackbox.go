package libzmq

/*
#include <stdlib.h>
#include "blackbox.h"
*/
import "C"

import (
	"time"
	"unsafe"
)

// BlackBox says where to receive, and the form of the messages.
type BlackBox struct {
	Endpoints               []string   // of each shard
	Topics                  [][]string // of each shard
	Workers                 int        // of each shard; 0: the shards do the work
	Count                   int64
	Size, Keys, Rounds      int
	AtKey, AtRound, AtValue int
	Messages, Wrong         int64 // results, as are all below
	Sum                     uint64
	Elapsed, ProcessorTime  time.Duration
}

// Run receives with threads in C, which go on until the process ends: their number is
// that of the shards, the workers and, for I/O, the shards again.
func (b *BlackBox) Run() error {
	// The memory that the threads use is never freed, since the threads never end.
	var endpoints, topics []*C.char
	first := []C.int{0}
	for i, all := range b.Topics {
		endpoints = append(endpoints, C.CString(b.Endpoints[i]))
		for _, topic := range all {
			topics = append(topics, C.CString(topic))
		}
		first = append(first, C.int(len(topics)))
	}
	c := (*C.struct_blackbox)(C.calloc(1, C.sizeof_struct_blackbox))
	c.endpoints = (**C.char)(forever(endpoints))
	c.topics = (**C.char)(forever(topics))
	c.first = (*C.int)(forever(first))
	c.shards, c.workers, c.count = C.int(len(b.Topics)), C.int(b.Workers), C.int64_t(b.Count)
	c.size, c.keys, c.rounds = C.int(b.Size), C.int(b.Keys), C.int(b.Rounds)
	c.at_key, c.at_round, c.at_value = C.int(b.AtKey), C.int(b.AtRound), C.int(b.AtValue)
	if err := result("blackbox", C.blackbox(c)); err != nil {
		return err
	}
	b.Messages, b.Wrong, b.Sum = int64(c.messages), int64(c.wrong), uint64(c.sum)
	b.Elapsed, b.ProcessorTime = time.Duration(c.elapsed), time.Duration(c.processor)
	return nil
}

// forever copies a slice to memory of C.
func forever[T any](s []T) unsafe.Pointer {
	size := len(s) * int(unsafe.Sizeof(s[0]))
	p := C.malloc(C.size_t(size))
	copy(unsafe.Slice((*T)(p), len(s)), s)
	return p
}
