package submit

import (
	"clustermap/internal/buf"
	"clustermap/internal/kvmsg"
)

// echoes recognizes a client's own updates among the KVPUBs of a server that does not
// acknowledge them: one of another implementation, or an older one of this package. It is
// owned by the session.
type echoes struct {
	writer *Writer
	uuids  uuidMaker
}

// came settles the updates of the client that are in a batch of KVPUBs. The replica has it.
func (e *echoes) came(wire []byte, spans []buf.Span) {
	w := e.writer
	w.mu.Lock()
	first, last := w.account.Open()
	w.mu.Unlock()
	if first > last {
		return
	}
	settled := false
	for _, span := range spans {
		r := kvmsg.Record(wire[span.Start:span.End])
		if n, own := e.uuids.number(r, first, last); own {
			if !settled {
				settled = true
				w.mu.Lock()
			}
			w.account.Echo(n, r.Seq())
		}
	}
	if settled {
		w.reclaim()
		w.mu.Unlock()
	}
}
