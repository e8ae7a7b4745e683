package engine

import (
	"bytes"
	"testing"
	"time"

	"clustermap/internal/queue"
	"clustermap/internal/testenv"
	"clustermap/zmtp"

	"go.uber.org/goleak"
)

var (
	testContext = testenv.Context
	must        = testenv.Must
	newLender   = testenv.NewLender
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// unbounded is a high-water mark that is never reached.
var unbounded = queue.HWM{Messages: queue.Unbounded, Bytes: queue.Unbounded}

// filled returns options with defaults for what tests leave out.
func filled(c Config) *Config {
	if c.Send == (queue.HWM{}) {
		c.Send = queue.HWM{Messages: 1000, Bytes: 64 << 20}
	}
	if c.Recv == (queue.HWM{}) {
		c.Recv = c.Send
	}
	if c.MaxMessageSize == 0 {
		c.MaxMessageSize = 256 << 20
	}
	c.RecvTotalBytes, c.MaxIncompleteBytes = 1<<30, 256<<20
	c.MaxConnections, c.MaxHandshakes, c.Linger = 1000, 1000, time.Second
	return &c
}

// plain is NULL without an authenticator.
var plain = Security{Mechanism: func(*zmtp.HandshakeConfig, time.Duration, int) zmtp.Mechanism { return nil }}

// wire is the bytes of one message.
func wire(frames ...string) []byte {
	parts := make([][]byte, len(frames))
	for i, f := range frames {
		parts[i] = []byte(f)
	}
	return zmtp.AppendMessage(nil, parts...)
}

// drain takes the messages that wait for a peer, as its writer would, and returns the bytes.
func drain(p *Pipe) (taken []byte) {
	var l queue.Load
	p.Out.Take(&l, nil, func() {})
	taken = bytes.Join(l.Gather(nil), nil)
	l.Clear()
	return taken
}
