package cluster

import "clustermap/internal/fifo"

// pending has the proposals of this node whose fate is not known yet, in order. The terms of
// a log never decrease, so that an entry of a later term which is committed ends all of an
// earlier term that are not.
type pending struct {
	all   fifo.Queue[proposal]
	bytes int
}

type proposal struct {
	Position
	bytes int
}

func (p *pending) add(at Position, bytes int) {
	p.all.Push(proposal{at, bytes})
	p.bytes += bytes
}

// take removes the first proposal.
func (p *pending) take() Position {
	e := p.all.Pop()
	p.bytes -= e.bytes
	return e.Position
}

// committed says that an entry is committed. It calls lost with each proposal that it shows to
// be lost, and reports whether the entry is the first of those that are left, which it removes.
func (p *pending) committed(at Position, lost func(Position)) (own bool) {
	for p.all.Len() > 0 {
		first := p.all.Front()
		switch {
		case first.Position == at:
			p.take()
			return true
		case first.Index <= at.Index || first.Term < at.Term:
			lost(p.take())
		default:
			return false
		}
	}
	return false
}

// skipped says that a snapshot has replaced all entries up to an index: what became of the
// proposals among them is not known.
func (p *pending) skipped(to uint64, unknown func(Position)) {
	for p.all.Len() > 0 && p.all.Front().Index <= to {
		unknown(p.take())
	}
}
