package snapshot

import (
	"bytes"
	"context"

	"clustermap/chp/internal/wire"
	"clustermap/internal/kvmsg"
	"clustermap/internal/store"
)

// scan finds the records of all waiting subtrees in one walk through the cut. For each
// slash of a key one look-up tells whether the subtree that ends there was requested.
// So the walk costs the same for one subtree as for thousands.
//
// A chain gets a list of the positions of its records, eight bytes each. A subtree with
// a large part of the map gets no list: walking through the cut and skipping the other
// records costs little more than sending the snapshot. A chain also gets no list if
// there is no memory for it.
func (n *Server) scan(ctx context.Context, pinned *pinnedCut, trees map[wire.Want][]*answer) {
	n.Counted.Walks.Add(1)
	n.mu.Lock()
	budget := n.opts.Memory/8 - n.listed
	n.mu.Unlock()
	most := max(pinned.Len()/denseShare, denseFrom)
	var chains []*chain
	listed := 0
	byPrefix := map[string][]*chain{} // at most one for clients of this package and one for others
	for w := range trees {
		c := newChain(n, w, pinned)
		c.listed = true
		chains = append(chains, c)
		byPrefix[w.Subtree] = append(byPrefix[w.Subtree], c)
	}
	note := func(prefix []byte, r kvmsg.Record, at store.Position) {
		for _, c := range byPrefix[string(prefix)] {
			if !c.listed {
				continue
			}
			if len(c.list) == most || listed >= budget && len(c.list) >= listAlways {
				listed -= c.listBytes()
				c.listed, c.list = false, nil
				continue
			}
			listed -= c.listBytes()
			c.list = append(c.list, at)
			listed += c.listBytes()
			c.size += len(r)
		}
	}
	look := 0
	pinned.From(0, func(r kvmsg.Record, at store.Position) bool {
		if look++; look%4096 == 0 && ctx.Err() != nil {
			return false
		}
		key := r.Key()
		if len(key) == 0 || key[0] != '/' && !kvmsg.IsHidden(key) {
			return true
		}
		for end := 1; ; {
			i := bytes.IndexByte(key[end:], '/')
			if i < 0 {
				return true
			}
			end += i + 1
			note(key[:end], r, at)
		}
	})
	n.mu.Lock()
	defer n.mu.Unlock()
	n.scanning = false
	if ctx.Err() != nil {
		return // the joiners end too
	}
	for _, c := range chains {
		n.begin(c, trees[c.want]...)
	}
}
