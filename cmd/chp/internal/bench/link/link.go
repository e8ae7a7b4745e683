// Package link ties the processes of a benchmark together: a parent starts its
// peers, tells each its task and when to go on, and hears from each how far it
// is, in JSON lines over the peer's standard input and output.
//
// No peer outlives its parent: a peer ends when its standard input does, which
// happens however the parent ends.
package link

import (
	"time"

	"clustermap/cmd/chp/internal/bench/workload"
)

// Task is the first line a peer gets: all that it has to know.
type Task struct {
	Role      string        `json:"role"`
	Spec      workload.Spec `json:"spec"`
	Servers   []string      `json:"servers,omitempty"`   // where the peer connects to
	Publisher int           `json:"publisher,omitempty"` // number of this one
	Rate      float64       `json:"rate,omitempty"`      // updates a second of this publisher; 0 is as fast as it goes
	Profile   string        `json:"profile,omitempty"`   // file for a CPU profile

	Data string `json:"data,omitempty"` // of a server: directory of its log
	Sync string `json:"sync,omitempty"` // when the log is flushed
	Pair *Pair  `json:"pair,omitempty"` // of one of two servers

	// Of a client of CURVE, in Z85: its own secret key and the server's public
	// one. The line goes through a pipe that nobody else reads.
	CurveKey       string `json:"curve_key,omitempty"`
	CurveServerKey string `json:"curve_server_key,omitempty"`
}

// Pair is what a server of a pair has to know.
type Pair struct {
	Backup    bool          `json:"backup"`
	Host      string        `json:"host"`
	Port      int           `json:"port"`
	Peer      string        `json:"peer"` // the other server
	State     string        `json:"state"`
	PeerState string        `json:"peer_state"`
	Timeout   time.Duration `json:"timeout"` // after which the other one is taken for dead
}

// Command is each further line a peer gets.
type Command string

// The commands.
const (
	Warm   Command = "warm"   // publisher: send the warm-up
	Go     Command = "go"     // publisher: send the measured updates
	Finish Command = "finish" // replica: report what there is, complete or not
	Clean  Command = "clean"  // publisher: delete every key of the workload
)

// Event is a line that a peer sends.
type Event struct {
	Kind Kind `json:"event"`

	Servers []string         `json:"servers,omitempty"` // Ready: where to connect to
	Count   uint64           `json:"count,omitempty"`   // Progress: updates so far
	First   int64            `json:"first,omitempty"`   // Sent: when sending began, by workload.Now
	Report  *workload.Report `json:"report,omitempty"`  // Done
	Error   string           `json:"error,omitempty"`   // Failed
}

// Kind is what an event says.
type Kind string

// The kinds of event.
const (
	Ready    Kind = "ready"    // the peer is where its task wants it
	Warmed   Kind = "warmed"   // the warm-up has been sent, or has arrived
	Sent     Kind = "sent"     // the publisher has sent everything, and the server has published it
	Done     Kind = "done"     // the replica has checked everything
	Cleaned  Kind = "cleaned"  // the keys are deleted
	Progress Kind = "progress" // still alive
	Failed   Kind = "failed"   // and why
)
