package follow

import (
	"log/slog"
	"time"
)

// links reports link events to the application. Only the client's run goroutine uses
// it.
type links struct {
	server string // the last one that the client followed, or ""
	linked bool   // the client still follows it
	warned bool   // it has logged that it does not
	lost   time.Time
}

// linked reports that the client follows a server.
func (f *Follower) linked(server string) {
	l := &f.links
	kind, former := LinkConnected, ""
	switch l.server {
	case "":
	case server:
		kind = LinkResynced
	default:
		kind, former = LinkFailedOver, l.server
	}
	// Who has read that an outage began reads that it is over.
	level := slog.LevelInfo
	if l.warned {
		level = slog.LevelWarn
	}
	switch kind {
	case LinkConnected:
		f.opts.Log.Log(f.ctx, level, "following the server", "server", server)
	case LinkResynced:
		f.opts.Log.Log(f.ctx, level, "following the server again", "server", server, "outage", time.Since(l.lost).Round(time.Millisecond))
	case LinkFailedOver:
		f.opts.Log.Log(f.ctx, level, "following another server", "server", server, "former", l.server, "outage", time.Since(l.lost).Round(time.Millisecond))
	}
	l.server, l.linked, l.warned = server, true, false
	f.reportLink(kind, server, former, nil)
}

// unlinked reports that the client no longer follows its server, if it did.
func (f *Follower) unlinked(err error) {
	if l := &f.links; l.linked {
		l.linked, l.lost = false, time.Now()
		f.reportLink(LinkLost, l.server, "", err)
	}
}

func (f *Follower) reportLink(kind LinkKind, server, former string, err error) {
	if f.opts.OnLink != nil && f.ctx.Err() == nil {
		f.opts.OnLink(kind, server, former, err)
	}
}
