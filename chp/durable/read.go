package durable

import (
	"errors"
	"fmt"

	"clustermap/chp/commit"
	"clustermap/chp/durable/internal/segment"
)

// Read reads the entries from an index; see [commit.Log]. While it reads, it holds no
// lock that Append needs.
func (l *Log) Read(from uint64, fn func(commit.Entry) error) error {
	l.files.RLock()
	err := l.read(from, fn)
	l.files.RUnlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.frontCut && l.ready() == nil {
		err = errors.Join(err, l.cutFront())
	}
	return err
}

func (l *Log) read(index uint64, fn func(commit.Entry) error) error {
	l.mu.Lock()
	err := l.ready()
	first, last, meta := l.first, l.last, l.meta
	if err == nil {
		if err = l.w.Flush(); err != nil {
			err = l.fail(err)
		}
	}
	l.mu.Unlock()
	switch {
	case err != nil:
		return err
	case index < first:
		return fmt.Errorf("%w: %d, the first is %d", commit.ErrGone, index, first)
	case index > last+1:
		return fmt.Errorf("%w: %d, the last entry is %d", commit.ErrOrder, index, last)
	case index == last+1:
		return nil
	}
	all, err := segment.List(l.segments.Names.Path)
	if err != nil {
		return err
	}
	w := segment.Walk{Segments: segment.From(all, index), Meta: &meta}
	err = w.Run(func(e commit.Entry, _ int64) error {
		if e.Index >= index {
			if err := fn(e); err != nil {
				return err
			}
		}
		if e.Index == last {
			return segment.ErrStop
		}
		return nil
	})
	switch {
	case errors.Is(err, segment.ErrStop):
		return nil
	case err == nil:
		return w.Corrupt(last)
	}
	return err
}
