package chp

import (
	"context"
	"iter"

	"clustermap/chp/internal/state"
	"clustermap/internal/buf"
	"clustermap/internal/kvmsg"
	"clustermap/internal/timer"
)

// preload puts the initial keys into the map before the server listens.
func (q *sequencer) preload(entries iter.Seq2[Entry, error], maxValue int) error {
	if entries == nil {
		return nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	var batch state.Entry
	apply := func() error {
		batch.First, batch.Count, batch.At = q.state.Last()+1, uint32(len(batch.Spans)), timer.Now()
		q.state.Apply(&batch)
		batch.Wire, batch.Spans = batch.Wire[:0], batch.Spans[:0]
		q.orderAfter()
		if q.mapRoom() < 0 {
			return kvmsg.ErrMapFull
		}
		return nil
	}
	var props []byte
	for e, err := range entries {
		if err == nil {
			err = validEntry(e, maxValue)
		}
		if err != nil {
			return err
		}
		props = kvmsg.AppendWithout(props[:0], e.Properties, "ttl")
		tag := kvmsg.HashKey(e.Key)
		if e.TTL > 0 {
			props = kvmsg.AppendTTL(props, e.TTL)
		}
		if len(props) > 0 {
			tag |= kvmsg.TagProperties
		}
		start := len(batch.Wire)
		batch.Wire = kvmsg.AppendRecord(batch.Wire, e.Key, 0, nil, props, e.Value)
		batch.Spans = append(batch.Spans, buf.Span{Start: uint32(start), End: uint32(len(batch.Wire)), Tag: tag})
		if len(batch.Wire) > preloadBatch {
			if err := apply(); err != nil {
				return err
			}
		}
	}
	if len(batch.Spans) > 0 {
		return apply()
	}
	return nil
}

// preloadBatch is the approximate number of bytes that preload applies at a time.
const preloadBatch = 64 << 10

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
	return kvmsg.ValidKey(e.Key)
}

// fill fills the map before the server listens: from the log or, if that is empty, with
// the keys of Preload. Those become the log's first checkpoint, because a part of them must
// not look like a map after a start that was interrupted.
func (q *sequencer) fill(o *ServerOptions) error {
	defer func() { q.restored = q.state.Last() }()
	if err := q.replay(o); err != nil {
		return err
	}
	if q.base == 0 {
		return nil // the log has a map
	}
	err := q.preload(o.Preload, o.MaxValueSize)
	if err == nil && o.Log != nil && q.state.Store.Len() > 0 {
		err = q.checkpoint(context.Background())
	}
	if err != nil {
		_ = q.journal.Close()
	}
	return err
}
