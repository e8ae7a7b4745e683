// Package link connects the processes of a benchmark, which are workers: a parent starts
// its peers, sends each its task and commands, and receives events.
package link

import (
	"encoding/json"
	"time"

	"clustermap/internal/bench/workload"
)

// Task is what a peer gets when it starts.
type Task struct {
	Role      string        `json:"role"`
	Spec      workload.Spec `json:"spec"`
	Servers   []string      `json:"servers,omitempty"`   // endpoints to which the peer connects
	Publisher int           `json:"publisher,omitempty"` // number of the first one whose updates it sends
	Lanes     int           `json:"lanes,omitempty"`     // how many publishers these are
	Rate      float64       `json:"rate,omitempty"`      // updates per second of this process; 0 means no limit
	Profile   string        `json:"profile,omitempty"`   // file for a CPU profile

	// Args is what else the role needs to know.
	Args json.RawMessage `json:"args,omitempty"`
}

// Command is what a peer is told later.
type Command string

// Commands.
const (
	Warm   Command = "warm"   // publisher: send the warm-up
	Go     Command = "go"     // publisher: send the measured updates
	Finish Command = "finish" // replica: report the updates that have arrived, complete or not
	Clean  Command = "clean"  // publisher: delete every key of the workload
)

// Event is what a peer sends.
type Event struct {
	Kind Kind `json:"event"`

	Servers []string         `json:"servers,omitempty"` // Ready: endpoints to connect to
	Count   uint64           `json:"count,omitempty"`   // Progress: updates so far
	First   int64            `json:"first,omitempty"`   // Sent: when sending began, by workload.Now
	Took    time.Duration    `json:"took,omitempty"`    // Sent: how long the publisher sent
	Report  *workload.Report `json:"report,omitempty"`  // Done
	Error   string           `json:"error,omitempty"`   // Failed
}

// Kind is the kind of an event.
type Kind string

// Kinds of events.
const (
	Ready    Kind = "ready"    // the peer has started
	Warmed   Kind = "warmed"   // the warm-up has been sent, or has arrived
	Sent     Kind = "sent"     // the publisher has sent everything, and the server has published it
	Done     Kind = "done"     // the replica has checked everything
	Cleaned  Kind = "cleaned"  // the keys are deleted
	Progress Kind = "progress" // still alive
	Failed   Kind = "failed"   // with the reason in Error
)
