package chp

import (
	"context"
	"iter"
	"time"

	"clustermap/internal/kvmsg"
	"clustermap/internal/store"
)

// preload puts the initial keys into the map before the server listens.
func (q *sequencer) preload(entries iter.Seq2[Entry, error], maxValue int) error {
	if entries == nil {
		return nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	var props []byte
	for e, err := range entries {
		if err == nil {
			err = validEntry(e, maxValue)
		}
		if err != nil {
			return err
		}
		hash, seq := kvmsg.HashKey(e.Key), q.last.Load()+1
		q.wheel.Remove(hash) // an earlier entry of the key may have had a TTL
		q.deadlines.remove(hash, seq)
		props = kvmsg.AppendWithout(props[:0], e.Properties, "ttl")
		if e.TTL > 0 {
			props = kvmsg.AppendTTL(props, e.TTL)
			q.wheel.Add(hash, seq, time.Now().Add(e.TTL))
			q.deadlines.set(hash, seq, clock()+e.TTL)
		}
		q.store.Put(e.Key, seq, nil, props, e.Value)
		q.last.Store(seq)
		q.published.Store(seq)
		if q.mapRoom() < 0 {
			return kvmsg.ErrMapFull
		}
	}
	return nil
}

// validEntry returns an error for an entry that the server refuses.
func validEntry(e Entry, maxValue int) error {
	switch {
	case len(e.Value) == 0:
		return ErrEmptyValue
	case len(e.Value) > maxValue:
		return kvmsg.ErrValueTooLarge
	case e.TTL < 0 || e.TTL > kvmsg.MaxTTL:
		return kvmsg.ErrTTL
	}
	if err := kvmsg.CheckProperties(kvmsg.AppendWithout(nil, e.Properties, "ttl")); err != nil {
		return err
	}
	return validKey(string(e.Key))
}

// fill fills the map before the server listens: from the log or, if that is empty, with
// the keys of Preload, which are then appended to the log.
func (q *sequencer) fill(o *ServerOptions) error {
	defer func() { q.restored = q.last.Load() }()
	if err := q.replay(o); err != nil {
		return err
	}
	if q.disk.on() && q.base == 0 {
		return nil // the log has a map
	}
	if err := q.preload(o.Preload, o.MaxValueSize); err != nil {
		_ = q.disk.close()
		return err
	}
	if q.disk.on() && q.store.Len() > 0 {
		return q.appendAll()
	}
	return nil
}

// appendAll appends the whole map to the log, after preload.
func (q *sequencer) appendAll() error {
	c := q.cut()
	defer c.Release()
	c.Pieces(func(p store.Piece) bool {
		if q.disk.room(context.Background()) != nil {
			return false // Flush returns the error too
		}
		q.mu.Lock()
		defer q.mu.Unlock()
		q.disk.append(batchHead{first: kvmsg.Record(p.Wire()).Seq(), count: uint32(p.Records), at: clock()}, []store.Piece{p})
		return true
	})
	return q.disk.group.Flush(context.Background())
}
