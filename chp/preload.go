package chp

import (
	"clustermap/chp/internal/state"
	"clustermap/internal/buf"
	"clustermap/internal/kvmsg"
	"clustermap/internal/timer"
)

// preload puts the keys of Preload into a map.
func preload(st *state.State, o *ServerOptions) error {
	if o.Preload == nil {
		return nil
	}
	var batch state.Entry
	apply := func() error {
		batch.First, batch.Count, batch.At = st.Last()+1, uint32(len(batch.Spans)), timer.Now()
		st.Apply(&batch)
		batch.Wire, batch.Spans = batch.Wire[:0], batch.Spans[:0]
		if o.MaxMapBytes > 0 && int64(st.Store.LiveBytes()) > o.MaxMapBytes {
			return kvmsg.ErrMapFull
		}
		return nil
	}
	var props []byte
	for e, err := range o.Preload {
		if err == nil {
			err = validEntry(e, o.MaxValueSize)
		}
		if err != nil {
			return err
		}
		props = kvmsg.AppendUser(props[:0], e.Properties)
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
	if err := kvmsg.CheckProperties(kvmsg.AppendUser(nil, e.Properties)); err != nil {
		return err
	}
	return kvmsg.ValidUpdate(e.Key, e.Value)
}
