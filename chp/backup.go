package chp

import (
	"context"
	"crypto/rand"

	"clustermap/chp/commit"
	"clustermap/chp/internal/journal/disk"
	"clustermap/chp/internal/state"
)

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
	now := c.live.Cut()
	defer now.Release()
	to, err := begin(now.Sequence)
	if err != nil {
		return err
	}
	image := &state.Image{Cut: now}
	rand.Read(image.ID[:]) // never fails
	return disk.Write(ctx, image, to)
}
