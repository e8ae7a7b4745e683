package chp

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
)

// TestPairSelf: a server whose other server would be itself is refused.
func TestPairSelf(t *testing.T) {
	t.Parallel()
	for field, change := range map[string]func(*ServerOptions){
		"Pair.Peer":      func(o *ServerOptions) { o.Pair.Peer = "tcp://127.0.0.1:5557"; o.Host = "" },
		"Pair.PeerState": func(o *ServerOptions) { o.Pair.PeerState = o.Pair.State },
	} {
		o, _ := pairOptions(t)
		change(&o)
		s, err := NewServer(o)
		if err == nil {
			must(t, s.Close())
		}
		var bad *OptionError
		if !errors.As(err, &bad) || bad.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
}

// logged is a handler that passes on the messages of errors.
type logged chan string

func (l logged) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelError }
func (l logged) WithAttrs([]slog.Attr) slog.Handler               { return l }
func (l logged) WithGroup(string) slog.Handler                    { return l }
func (l logged) Handle(_ context.Context, r slog.Record) error {
	select {
	case l <- r.Message:
	default:
	}
	return nil
}

// TestPairSameRole: of two primaries each logs that the other one is a primary too.
func TestPairSameRole(t *testing.T) {
	t.Parallel()
	po, bo := pairOptions(t)
	bo.Pair.Backup = false
	logs := [2]logged{make(logged, 100), make(logged, 100)}
	po.Logger, bo.Logger = slog.New(logs[0]), slog.New(logs[1])
	startPairServer(t, po)
	startPairServer(t, bo)
	for i, l := range logs {
		select {
		case message := <-l:
			if !strings.Contains(message, "role") {
				t.Errorf("server %d logs %q", i, message)
			}
		case <-testContext(t).Done():
			t.Fatalf("server %d logs no error", i)
		}
	}
}
