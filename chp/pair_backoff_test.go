package chp

import (
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"clustermap/chp/commit"
)

// TestPairCopyBacksOff: a passive server whose log does not take the map asks for it less
// and less often.
func TestPairCopyBacksOff(t *testing.T) {
	t.Parallel()
	po, bo := pairOptions(t)
	primary := startAlone(t, po)
	c := pairClient(t, po, bo)
	_, err := c.SetSync(testContext(t), "/a", []byte("1"))
	must(t, err)
	log := &failingCheckpoints{Log: openLog(t, t.TempDir()), failed: make(chan time.Time, 1000)}
	log.fails.Store(true)
	bo.Log = log
	startPairServer(t, bo)
	first := <-log.failed
	for range 3 {
		<-log.failed
	}
	if d, least := (<-log.failed).Sub(first), (1+2+4+8)*50*time.Millisecond; d < least {
		t.Errorf("five attempts within %v, less than %v", d, least)
	}
	log.fails.Store(false)
	eventually(t, "the backup follows", primary.inSync)
}

// failingCheckpoints is a log that writes no checkpoint while it fails, as one on a
// disk that is full.
type failingCheckpoints struct {
	commit.Log
	fails  atomic.Bool
	failed chan time.Time
}

func (l *failingCheckpoints) Checkpoint(index, sequence uint64) (commit.Checkpoint, error) {
	if l.fails.Load() {
		l.failed <- time.Now()
		return nil, commit.ErrFull
	}
	return l.Log.Checkpoint(index, sequence)
}

// TestPairRefusedLinkIsLoggedSeldom: a passive server whose connections to the active one are
// reset does not log each attempt, though each has another port.
func TestPairRefusedLinkIsLoggedSeldom(t *testing.T) {
	t.Parallel()
	po, bo := pairOptions(t)
	l, err := net.Listen("tcp", net.JoinHostPort(po.Host, "0"))
	must(t, err)
	defer l.Close()
	attempts := make(chan struct{}, 20)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			must(t, c.(*net.TCPConn).SetLinger(0))
			must(t, c.Close())
			select {
			case attempts <- struct{}{}:
			default:
			}
		}
	}()
	var told lockedLog
	bo.Pair.Peer, bo.Logger = "tcp://"+l.Addr().String(), told.logger()
	startAlone(t, po)
	startPairServer(t, bo)
	for range cap(attempts) {
		<-attempts
	}
	if n := strings.Count(told.String(), "does not follow the active server"); n == 0 || n > cap(attempts)/4 {
		t.Errorf("%d lines:\n%s", n, told.String())
	}
}
