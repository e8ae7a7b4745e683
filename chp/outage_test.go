package chp

import (
	"io"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"testing"
)

// warnings returns a logger for lines of level WARN and above.
func (l *logLines) warnings() *slog.Logger {
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelWarn}))
}

// Who has read, among warnings, that a passive server does not get to follow the active one reads
// there that it does again.
func TestLogSaysThatAServerFollowsAgain(t *testing.T) {
	t.Parallel()
	po, bo := pairOptions(t)
	l, err := net.Listen("tcp", net.JoinHostPort(po.Host, "0"))
	must(t, err)
	defer l.Close()
	var open atomic.Bool
	primaryAt := strings.TrimPrefix(bo.Pair.Peer, "tcp://")
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			if !open.Load() {
				_ = c.Close()
				continue
			}
			far, err := net.Dial("tcp", primaryAt)
			if err != nil {
				_ = c.Close()
				continue
			}
			join := func(to, from net.Conn) {
				_, _ = io.Copy(to, from)
				_, _ = to.Close(), from.Close()
			}
			go join(c, far)
			go join(far, c)
		}
	}()
	var lines logLines
	bo.Pair.Peer, bo.Logger = "tcp://"+l.Addr().String(), lines.warnings()
	primary := startAlone(t, po)
	startPairServer(t, bo)
	eventually(t, "the beginning is logged", func() bool { return lines.has("does not follow the active server") })
	if lines.has("msg=\"follows the active server\"") {
		t.Error("the end is logged too early")
	}
	open.Store(true)
	eventually(t, "the backup follows", primary.inSync)
	eventually(t, "the end is logged", func() bool { return lines.has("msg=\"follows the active server\"") })
}

// Who has read that a server cannot hear the other one, which refuses it, reads that it can.
func TestLogSaysThatAServerIsHeardAgain(t *testing.T) {
	t.Parallel()
	po, bo := pairOptions(t)
	var lines logLines
	po.Logger = lines.warnings()
	startAlone(t, po)
	other := bo
	pair := *bo.Pair
	other.Pair = &pair
	withOwnKey(&other)
	wrong := startPairServer(t, other)
	eventually(t, "the beginning is logged", func() bool { return lines.has("cannot hear the other server") })
	wrong.stop()
	if lines.has("msg=\"hears the other server\"") {
		t.Error("the end is logged too early")
	}
	startPairServer(t, bo)
	eventually(t, "the end is logged", func() bool { return lines.has("msg=\"hears the other server\"") })
}
