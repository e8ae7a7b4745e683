package chp

import (
	"iter"
	"time"
)

// preload enters the keys that the map begins with, before the server listens.
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
		hash, seq := hashKey(e.Key), q.last.Load()+1
		q.wheel.remove(hash) // of an earlier entry of the key
		q.deadlines.remove(hash, seq)
		props = props[:0]
		if e.TTL > 0 {
			props = appendTTL(props, e.TTL)
			q.wheel.add(hash, seq, time.Now().Add(e.TTL))
			q.deadlines.set(hash, seq, clock()+e.TTL)
		}
		q.store.put(e.Key, seq, nil, props, e.Value)
		q.last.Store(seq)
		q.published.Store(seq)
		if q.mapRoom() < 0 {
			return errMapFull
		}
	}
	return nil
}

// validEntry returns why a server refuses an entry.
func validEntry(e Entry, maxValue int) error {
	switch {
	case len(e.Value) == 0:
		return ErrEmptyValue
	case len(e.Value) > maxValue:
		return errValueTooLarge
	case e.TTL < 0 || e.TTL > maxTTL:
		return errTTL
	}
	return validKey(string(e.Key))
}
