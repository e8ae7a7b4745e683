package collect

import (
	"context"

	"clustermap/chp/internal/ledger"
	"clustermap/chp/internal/order"
	"clustermap/internal/mutate"
	"clustermap/sockets"
)

// sender describes the client that sent a batch. The zero sender does not number its
// updates.
type sender struct {
	order.From
	every   int     // report its progress after this many bytes of updates; 0 means never
	replies bool    // replies acknowledge its updates
	unasked bool    // it expects them without asking
	ended   bool    // the connection has ended, and the batch was still queued
	member  *member // nil if it is no longer known
}

// numberOrder checks the order numbers of a batch: they increase, or are all 0.
type numberOrder struct {
	begun   bool
	last    uint64
	ignored bool // the client does not number its updates
}

// next reports whether the next number is in order.
func (o *numberOrder) next(n uint64) bool {
	if o.begun && (n <= o.last || o.last == 0) && n|o.last != 0 {
		return false
	}
	o.begun, o.last = true, n
	return true
}

// matters reports whether the peer numbers its updates: then a number out of order is
// an error.
func (o *numberOrder) matters(p *sockets.Peer) bool {
	if !o.ignored {
		o.ignored = !senderOf(p, nil).Numbered
	}
	return !o.ignored
}

// Reply returns the reply to a client that joins, or nil if the peer does not number its
// updates.
func (c *Clients) Reply(peer *sockets.Peer) []byte {
	if who := senderOf(peer, nil); who.Numbered {
		return c.reply(nil, who)
	}
	return nil
}

// reply appends the reply to a client, in wire form.
func (c *Clients) reply(dst []byte, who sender) []byte {
	upTo, limited := who.member.limit()
	c.o.Order.Between(func(now *order.Moment) {
		a := now.State.Clients.Reply(who.ID, now.State.ID)
		if limited {
			a.Limit(upTo)
		}
		if mutate.NoRepeatCheck {
			a.Known, a.Counter, a.Runs = true, 0, nil
		}
		if !who.replies {
			a.Runs = nil
		}
		dst = ledger.AppendReply(dst, &a)
	})
	return dst
}

// applied is reply when all updates that are ordered now are published: the client is to hear of
// those that it has sent.
func (c *Clients) applied(ctx context.Context, dst []byte, who sender) ([]byte, error) {
	if err := c.o.Order.Caught(ctx); err != nil {
		return dst, err
	}
	return c.reply(dst, who), nil
}
