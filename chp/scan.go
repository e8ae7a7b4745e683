package chp

import (
	"bytes"
	"context"
)

// scan finds the records of all the subtrees that wait, in one walk through the
// cut: for each slash of a key one look-up tells whether somebody wants what is
// below it. So the walk costs the same for one subtree as for thousands.
//
// A chain gets the places of its records, eight bytes each. A subtree that has a
// large part of the map gets none: to walk through the cut and to leave out what
// is not wanted then costs little more than the snapshot itself. So does one for
// which there is no memory left.
func (n *snapshotter) scan(ctx context.Context, held *heldCut, trees map[want][]*answer) {
	n.scans.Add(1)
	n.mu.Lock()
	budget := n.server.opts.SnapshotMemory/8 - n.listed
	n.mu.Unlock()
	most := max(held.len()/denseShare, denseFrom)
	var chains []*chain
	listed := 0
	byPrefix := map[string][]*chain{} // at most one for our clients and one for others
	for w := range trees {
		c := newChain(n, w, held)
		c.listed = true
		chains = append(chains, c)
		byPrefix[w.subtree] = append(byPrefix[w.subtree], c)
	}
	note := func(prefix []byte, r record, at position) {
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
	held.from(0, func(r record, at position) bool {
		if look++; look%4096 == 0 && ctx.Err() != nil {
			return false
		}
		key := r.key()
		if len(key) == 0 || key[0] != '/' {
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
		return // the clients see it, too
	}
	for _, c := range chains {
		n.begin(c, trees[c.want]...)
	}
}

const (
	// A subtree that has more than one record in denseShare, and more than
	// denseFrom, is found anew for each client.
	denseShare = 16
	denseFrom  = 1024

	// listAlways is how many records are noted even without memory for it:
	// about as much as the request itself takes.
	listAlways = 64
)
