package chp

import (
	"context"
	"crypto/rand"
	"time"

	"clustermap/chp/commit"
	"clustermap/internal/kvmsg"
)

// backupPiece is about how many bytes of records Backup puts into one entry.
const backupPiece = 256 << 10

// Backup writes the client's map, as it is at one moment, with the checkpoint
// that begin makes; sequence is that of the last update in the map. The records
// have the sequence, UUID and properties of their last update; the time to live
// is what is left of it. It ends the checkpoint with Commit, or after an
// error with Abort.
//
// The backup gives the map a new identity, since it does not record everything that the
// server knows, such as which updates of clients were applied. All servers that start
// from the backup have the same map, so two of them can be a pair.
//
// It waits until the client follows a server. A client of some subtrees has only
// those.
func (c *Client) Backup(ctx context.Context, begin func(sequence int64) (commit.Checkpoint, error)) error {
	if err := c.waitActive(ctx); err != nil {
		return err
	}
	c.mu.Lock()
	state, sequence := c.state.Load(), c.sequence.Load()
	now := state.Cut()
	c.mu.Unlock()
	defer now.Release()

	to, err := begin(sequence)
	if err != nil {
		return err
	}
	defer to.Abort()
	var id [mapIDSize]byte
	rand.Read(id[:]) // never fails
	if err := to.Append(commit.Entry{Kind: kindMapID, Time: time.Now().UnixNano(), Records: id[:]}); err != nil {
		return err
	}
	e := commit.Entry{Kind: commit.KindRecords, Time: time.Now().UnixNano()}
	add := func() {
		if err = ctx.Err(); err == nil && e.Count > 0 {
			err = to.Append(e)
		}
		e.Count, e.Records = 0, e.Records[:0]
	}
	now.Records(func(r kvmsg.Record) bool {
		if e.Count > 0 && len(e.Records)+len(r) > backupPiece {
			add()
		}
		if e.Count == 0 {
			e.Time = time.Now().UnixNano() // the time from which the times to live count
		}
		e.Records = kvmsg.AppendAged(e.Records, r, state.deadlines.left(r))
		e.Count++
		return err == nil
	})
	if err == nil {
		add()
	}
	if err == nil {
		err = to.Commit()
	}
	return err
}
