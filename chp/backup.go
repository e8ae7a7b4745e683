package chp

import (
	"context"
	"crypto/rand"
	"time"

	"clustermap/chp/commit"
	"clustermap/internal/kvmsg"
)

// backupPiece is the approximate size of the records in one entry of a backup, in
// bytes.
const backupPiece = 256 << 10

// Backup writes a consistent view of the client's map to the checkpoint that begin
// returns; sequence is that of the last update in the view. Each record has the
// sequence, UUID and properties of the key's last update, with the remaining time to
// live. Backup ends the checkpoint with Commit, or with Abort after an error.
//
// The backup gives the map a new identity, because it does not contain everything that
// the server knows, such as which updates of each client were applied. All servers that
// start from the same backup have the same map, so two of them can form a pair.
//
// Backup waits until the client follows a server. A backup of a client of subtrees
// contains only those.
func (c *Client) Backup(ctx context.Context, begin func(sequence int64) (commit.Checkpoint, error)) error {
	if err := c.WaitActive(ctx); err != nil {
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
			e.Time = time.Now().UnixNano() // times to live count from here
		}
		e.Records = kvmsg.AppendAged(e.Records, r, state.deadlines.remaining(r))
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
