// Package results has the results of the commands that measure, as they write them and
// cmd/report reads them.
package results

import (
	"cmp"

	"clustermap/internal/bench/figures"
)

// Sockets is the result of one case of cmd/compare.
type Sockets struct {
	Case        string `json:"case"`
	Pattern     string `json:"pattern"`
	Transport   string `json:"transport"`
	Size        int    `json:"size"`                  // of a message, in bytes
	Subscribers int    `json:"subscribers,omitempty"` // of pub-sub
	Topic       bool   `json:"topic,omitempty"`       // they subscribe to a topic
	Curve       bool   `json:"curve,omitempty"`
	Receive     string `json:"receive,omitempty"` // our receiver's call, if not RecvBatch, or Recv in REQ and REP
	First       string `json:"first"`             // sends or asks, in our column
	Second      string `json:"second"`            // receives or answers, in our column
	Peer        string `json:"peer"`              // at both ends in the other column
	Batch       int    `json:"batch"`             // messages for each call of SendBatch, 0: Send

	Unit      string    `json:"unit"`
	Ours      float64   `json:"ours"`   // median
	Theirs    float64   `json:"theirs"` // median
	Ratio     float64   `json:"ratio"`  // median of the rounds' ratios, ours to theirs
	Min       float64   `json:"min"`    // of the rounds' ratios
	Max       float64   `json:"max"`
	AllOurs   []float64 `json:"all_ours"` // every round's
	AllTheirs []float64 `json:"all_theirs"`
	Ratios    []float64 `json:"ratios"`
	Error     string    `json:"error,omitempty"` // why there are no figures
}

// calls are the names of a library's calls that send and receive a message.
var calls = map[string][2]string{
	"libzmq":    {"zmq_send", "zmq_recv"},
	"pebbe":     {"SendBytes", "RecvBytes"},
	"go-zeromq": {"Send", "Recv"},
}

// Calls returns the calls with which messages are sent and received: in our column, and in
// the other one.
func (s *Sockets) Calls() (ours, theirs string) {
	them := calls[s.Peer]
	theirs = them[0] + ", " + them[1]
	send, receive := "Send", cmp.Or(s.Receive, "Recv")
	if s.Pattern == "req-rep" {
		ours = send + ", " + receive
		switch {
		case s.First == s.Peer:
			ours = theirs + " / " + ours
		case s.Second == s.Peer:
			ours += " / " + theirs
		}
		return ours, theirs
	}
	if s.Batch > 0 {
		send = "SendBatch"
	}
	if s.Receive == "" {
		receive = "RecvBatch"
	}
	if s.First == s.Peer {
		send = them[0]
	}
	if s.Second == s.Peer {
		receive = them[1]
	}
	return send + ", " + receive, theirs
}

// KV is the result of cmd/kv.
type KV struct {
	Machine Machine   `json:"machine"`
	Command []string  `json:"command"`
	Date    string    `json:"date"` // RFC 3339, of the beginning
	Rounds  int       `json:"rounds"`
	Cases   []*KVCase `json:"cases"`
}

// Machine is where something was measured.
type Machine struct {
	System    string `json:"system"`
	Processor string `json:"processor"`
	Cores     int    `json:"cores"`
	Go        string `json:"go"`
}

// KVCase is the figures of a system, one a round.
type KVCase struct {
	System     string `json:"system"`
	Mode       string `json:"mode"`
	Keys       int    `json:"keys"`
	ValueBytes int    `json:"value_bytes"`
	Updates    int    `json:"updates"`
	Replicas   int    `json:"replicas"`
	Conflates  bool   `json:"conflates,omitempty"` // a rate counts the updates that were seen
	Error      string `json:"error,omitempty"`     // why there are no figures
	Missing    bool   `json:"missing,omitempty"`   // Error says which program is not installed
	Seen       Rounds `json:"seen,omitempty"`      // share of the updates, if the system conflates

	// Of mode rate: updates a second, and ours divided by the system's, round by round.
	Rates  Rounds           `json:"rates,omitempty"`
	Rate   *figures.Summary `json:"rate,omitempty"`
	Ratios Rounds           `json:"ratios,omitempty"`
	Ratio  *figures.Summary `json:"ratio,omitempty"`

	// Of mode latency: the updates that the publisher sent a second, and percentiles in
	// microseconds.
	Offered float64          `json:"offered,omitempty"`
	Sent    Rounds           `json:"sent,omitempty"`
	P50     Rounds           `json:"p50_us,omitempty"`
	P99     Rounds           `json:"p99_us,omitempty"`
	P999    Rounds           `json:"p99.9_us,omitempty"`
	Median  *figures.Summary `json:"p50_us_summary,omitempty"`
}

// Cluster is the result of cmd/cluster.
type Cluster struct {
	Machine    Machine        `json:"machine"`
	Command    []string       `json:"command"`
	Date       string         `json:"date"` // RFC 3339, of the beginning
	Rounds     int            `json:"rounds"`
	Nodes      int            `json:"nodes"`
	Keys       int            `json:"keys"` // of mode rate
	ValueBytes int            `json:"value_bytes"`
	Callers    int            `json:"callers"` // of modes puts and reads
	Cases      []*ClusterCase `json:"cases"`
}

// ClusterCase is the figures of a system in a mode, one a round.
type ClusterCase struct {
	System  string           `json:"system"`
	Mode    string           `json:"mode"`
	Unit    string           `json:"unit"`
	Updates int              `json:"updates,omitempty"` // of mode rate
	All     Rounds           `json:"all,omitempty"`     // of mode put, what half of the puts take
	Figure  *figures.Summary `json:"figure,omitempty"`
	P99     Rounds           `json:"p99,omitempty"`    // of mode put
	Failed  int              `json:"failed,omitempty"` // calls that failed, which do not count
	Ratios  Rounds           `json:"ratios,omitempty"` // ours divided by the system's, round by round
	Ratio   *figures.Summary `json:"ratio,omitempty"`
	Error   string           `json:"error,omitempty"`   // why there are no figures
	Missing bool             `json:"missing,omitempty"` // Error says why the system is not measured in this mode
}

// Rounds are figures, one a round.
type Rounds []float64

// Summary returns nil if there are none.
func (r Rounds) Summary() *figures.Summary {
	if len(r) == 0 {
		return nil
	}
	s := figures.Of(r)
	return &s
}

// Median returns the median.
func (r Rounds) Median() float64 { return figures.Median(r) }
