package partner

import (
	"context"
	"encoding/binary"
	"math"
	"time"

	"clustermap/chp/internal/order"
	"clustermap/internal/kvmsg"
	"clustermap/internal/timer"
)

// A server that has restarted knows from its log when keys with times to live were set, by
// the wall clock of its machine. If that was set since, keys would end too early once the
// server takes over. So it announces propertyTimes when it follows, and the active server,
// whose clock runs steadily, sends it what is left of each (TIMES). A map that is sent as a
// whole has that in it anyway.

// propertyTimes announces a passive server that is to be sent the remaining times to live.
const propertyTimes = "X-CHP-Peer-Times"

// sendTimes sends what is left of the times to live of all keys, and an empty message.
func (f *following) sendTimes(ctx context.Context) error {
	c := f.Order.Live().Cut()
	defer c.Release()
	body := make([]byte, 0, basePortion)
	var err error
	c.Records(func(r kvmsg.Record) bool {
		if left := c.Deadlines.Remaining(r); left > 0 {
			body = appendTime(body, r, left)
		}
		if len(body) > basePortion-timeSize-math.MaxUint8 {
			err = f.control(ctx, nameTimes, body)
			body = body[:0]
		}
		return err == nil
	})
	if err == nil && len(body) > 0 {
		err = f.control(ctx, nameTimes, body)
	}
	if err == nil {
		err = f.control(ctx, nameTimes, nil)
	}
	return err
}

// timeSize is the size of what a body of TIMES has of a key, beside the key: the sequence of
// its update, the remaining time, and the key's length.
const timeSize = 8 + 8 + 1

func appendTime(dst []byte, r kvmsg.Record, left time.Duration) []byte {
	dst = binary.BigEndian.AppendUint64(dst, uint64(r.Seq()))
	dst = binary.BigEndian.AppendUint64(dst, uint64(left))
	return append(append(dst, byte(len(r.Key()))), r.Key()...)
}

// parseTime returns what a body of TIMES says of its first key, and the rest of it.
func parseTime(b []byte) (key []byte, seq int64, left time.Duration, rest []byte, ok bool) {
	if len(b) < timeSize || len(b) < timeSize+int(b[timeSize-1]) {
		return nil, 0, 0, nil, false
	}
	seq, left = int64(binary.BigEndian.Uint64(b)), time.Duration(binary.BigEndian.Uint64(b[8:]))
	key, rest = b[timeSize:][:b[timeSize-1]], b[timeSize+int(b[timeSize-1]):]
	return key, seq, left, rest, seq > 0 && left > 0 && left <= kvmsg.MaxTTL
}

// times takes over remaining times to live of the active server. Those of updates that this
// server lacks follow with the updates.
func (f *follower) times(body []byte) error {
	if len(body) == 0 {
		f.restored = false
	}
	var err error
	f.Order.Between(func(now *order.Moment) {
		for at := timer.Now(); len(body) > 0; {
			key, seq, left, rest, ok := parseTime(body)
			if !ok {
				err = errFollow
				return
			}
			if seq <= now.State.Last() {
				now.State.Deadlines.Set(kvmsg.HashKey(key), seq, at+left)
			}
			body = rest
		}
	})
	return err
}
