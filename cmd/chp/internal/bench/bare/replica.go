package bare

import (
	"encoding/binary"
	"io"

	"clustermap/cmd/chp/internal/bench/link"
	"clustermap/cmd/chp/internal/bench/workload"
)

// Replica is the role that receives every update.
func Replica(p *link.Peer) error {
	c, err := dial(p.Context(), p.Servers[1])
	if err != nil {
		return err
	}
	// The server's first byte says that it forwards from now on.
	if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
		return err
	}
	p.Send(link.Event{Kind: link.Ready})

	r := replica{table: newTable(p.Spec.Keys), checker: workload.NewChecker(p.Spec)}
	in := &reader{in: c, buf: newBuffer(p.Spec)}
	warmup := uint64(p.Spec.Warmup)
	total := warmup + uint64(p.Spec.Updates)
	warmed := false
	for {
		if !warmed && r.count >= warmup {
			warmed = true
			p.Send(link.Event{Kind: link.Warmed})
		}
		if r.count >= total {
			break
		}
		b, err := in.read()
		if err != nil {
			return err
		}
		r.arrived = workload.Now()
		n, err := r.apply(b)
		if err != nil {
			return err
		}
		in.used(n)
		p.Count.Store(r.count)
	}

	var content workload.Content
	r.table.each(content.Add)
	report := r.checker.Report(content)
	report.OutOfOrder += r.outOfOrder
	p.Send(link.Event{Kind: link.Done, Report: &report})
	<-p.Context().Done()
	return nil
}

type replica struct {
	table      *table
	count      uint64
	sequence   uint64
	outOfOrder uint64
	checker    *workload.Checker // the same as that of a CHP replica
	arrived    int64             // of the latest read
}

// apply stores the whole messages in b and returns how many bytes they take.
func (r *replica) apply(b []byte) (int, error) {
	var messages [batch]message
	done, n := 0, 0
	for {
		m := &messages[n]
		end, err := m.parse(b, done)
		if err != nil {
			return done, err
		}
		if end > 0 {
			sequence := binary.BigEndian.Uint64(m.sequence(b))
			if sequence != r.sequence+1 {
				r.outOfOrder++
			}
			r.sequence = sequence
			r.count++
			r.checker.See(m.value(b), r.arrived)
			done = end
			n++
		}
		if end == 0 || n == batch {
			r.table.store(b, messages[:n])
			n = 0
		}
		if end == 0 {
			return done, nil
		}
	}
}
