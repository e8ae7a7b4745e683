package titanic

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"clustermap/internal/list"
	"clustermap/internal/wake"

	bolt "go.etcd.io/bbolt"
)

// A store keeps requests and replies in one bbolt file, and an index of them in memory.
//
// One bucket holds a message for each entry: the request, and later the reply in its
// place, under a number that increases with each request. So storing a reply and
// deleting its request are one step, and requests that arrived together are on the same
// pages.
//
// One goroutine, commit, makes all changes. It writes all waiting changes in one
// transaction, so they share its flush. The index and the caller see a change only when
// it is on disk. So everything that a client was told survives a crash, and every
// request that the dispatcher passes to a worker is stored.
type store struct {
	options Options
	pause   time.Duration // without new requests after the disk was full
	added   func(*entry)  // called for each request that was stored
	removed func(*entry)  // called for each entry that has a reply or was deleted
	db      *bolt.DB
	update  func(func(*bolt.Tx) error) error // db.Update; replaced by tests
	began   time.Time                        // the store's clock is the time since then
	wake    chan struct{}                    // commit has to check the queue; capacity 1
	running sync.WaitGroup
	failed  chan struct{} // closed when the store has failed

	reserved bool // the file has reserveBucket; of commit's goroutine

	mu      sync.Mutex
	index   map[UUID]*entry
	waiting list.List[entry] // requests, oldest first
	done    list.List[entry] // replies, oldest first
	entries int              // in the index, or on the way to it
	bytes   int64
	replies int64 // of bytes, those of replies
	next    uint64
	queue   []*change
	closed  bool
	err     error     // why the store has failed
	full    time.Time // until when nothing is stored because the disk was full

	count counts
}

// counts are the counters of a store since it was opened.
type counts struct {
	commits, changes, stored, executed uint64
}

var (
	formatBucket  = []byte("titanic")
	formatKey     = []byte("format")
	formatValue   = []byte("1")
	messageBucket = []byte("messages")
	reserveBucket = []byte("reserve")
)

// change is one change of the store.
type change struct {
	do     action
	e      *entry
	header header
	at     time.Duration // the header's time on the store's clock
	value  []byte
	key    [8]byte
	result error
	done   chan struct{}
}

type action uint8

const (
	add    action = iota // store a request
	finish               // store a reply in its place
	remove               // delete either
)

// put stores a request. It is on disk when put returns nil; after an error other than
// errFull it may be.
func (s *store) put(service string, body [][]byte) (UUID, error) {
	now := time.Now()
	h := header{kind: kindRequest, id: newUUID(), at: now.UnixNano(), service: service}
	c := &change{do: add, header: h, value: encode(h, body)}
	size := int64(len(c.value) + entryBytes)
	s.mu.Lock()
	if s.err == nil && !s.closed {
		if s.entries >= s.options.MaxRequests || s.bytes+size > s.options.MaxBytes || now.Before(s.full) {
			s.mu.Unlock()
			return UUID{}, errFull
		}
		s.entries++
		s.bytes += size
		s.next++
		c.e = newEntry(entry{id: h.id, service: service, key: s.next, size: int(size), at: now.Sub(s.began), kind: kindRequest})
	}
	s.enqueue(c)
	s.mu.Unlock()
	if err := s.await(c); err != nil {
		return UUID{}, err
	}
	return h.id, nil
}

// finish stores the reply in place of the request. If the request was deleted
// meanwhile, it stores nothing and returns errGone.
func (s *store) finish(e *entry, k kind, frames [][]byte) error {
	now := time.Now()
	h := header{kind: k, id: e.id, at: now.UnixNano()}
	c := &change{do: finish, e: e, header: h, value: encode(h, frames), at: now.Sub(s.began)}
	s.mu.Lock()
	s.enqueue(c)
	s.mu.Unlock()
	return s.await(c)
}

// remove deletes the messages of UUIDs. A UUID without a message is not an error.
func (s *store) remove(ids ...UUID) error {
	var all []*change
	s.mu.Lock()
	err := s.err
	for _, id := range ids {
		if e := s.index[id]; e != nil {
			c := &change{do: remove, e: e}
			s.enqueue(c)
			all = append(all, c)
		}
	}
	s.mu.Unlock()
	for _, c := range all {
		err = cmp.Or(err, s.await(c))
	}
	return err
}

// enqueue passes a change to commit. The caller holds s.mu.
func (s *store) enqueue(c *change) {
	c.done = make(chan struct{})
	if s.closed || s.err != nil {
		c.result = ErrClosed
		if s.err != nil {
			c.result = s.err
		}
		close(c.done)
		return
	}
	binary.BigEndian.PutUint64(c.key[:], c.e.key)
	s.queue = append(s.queue, c)
	if len(s.queue) == 1 {
		wake.Signal(s.wake)
	}
}

func (s *store) await(c *change) error {
	<-c.done
	return c.result
}

// commit writes the queued changes, batch by batch, until the store is closed.
func (s *store) commit() {
	for range s.wake {
		for {
			batch, closed := s.nextBatch()
			if len(batch) == 0 {
				if closed {
					return
				}
				break
			}
			if s.err != nil { // only this goroutine sets it
				s.refuse(batch, s.err)
				continue
			}
			s.settle(batch, s.write(batch))
		}
	}
}

// nextBatch removes and returns the next batch of the queue.
func (s *store) nextBatch() (batch []*change, closed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, size := 0, 0
	for n < len(s.queue) && size < batchBytes && (s.options.MaxBatch == 0 || n < s.options.MaxBatch) {
		size += len(s.queue[n].value)
		n++
	}
	if n == len(s.queue) {
		batch, s.queue = s.queue, nil
	} else {
		batch, s.queue = s.queue[:n:n], s.queue[n:]
	}
	return batch, s.closed
}

// write writes a batch in one transaction, with one flush.
func (s *store) write(batch []*change) error {
	return s.update(func(tx *bolt.Tx) error {
		b := tx.Bucket(messageBucket)
		b.FillPercent = 0.9 // keys rise
		if !s.reserved && slices.ContainsFunc(batch, func(c *change) bool { return c.do == add }) {
			if err := reserve(tx); err != nil {
				return err
			}
		}
		for _, c := range batch {
			c.result = nil
			present := c.do == add || b.Get(c.key[:]) != nil
			var err error
			switch {
			case !present && c.do == finish:
				c.result = errGone
			case !present:
			case c.do == remove:
				err = b.Delete(c.key[:])
			default:
				err = b.Put(c.key[:], c.value)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// reserve makes reserveBucket.
func reserve(tx *bolt.Tx) error {
	b, err := tx.CreateBucket(reserveBucket)
	for i := uint16(0); err == nil && i < reserveValues; i++ {
		err = b.Put(binary.BigEndian.AppendUint16(nil, i), make([]byte, reserveValueBytes))
	}
	return err
}

// release frees the reserved space, so that messages can be deleted. Requests are added
// only after it is reserved again.
func (s *store) release() {
	err := s.update(func(tx *bolt.Tx) error { return tx.DeleteBucket(reserveBucket) })
	if err == nil {
		s.reserved = false
	}
	// Else the deletions fail in the same way.
}

// settle completes a batch with the result of its transaction. If the disk is full, it
// tries again with smaller batches: deletions need little space, and free some.
func (s *store) settle(batch []*change, err error) {
	if err == nil {
		s.apply(batch)
		return
	}
	if !isFull(err) {
		s.fail(fmt.Errorf("%w: %w", ErrFailed, err))
		s.refuse(batch, s.err)
		return
	}
	s.mu.Lock()
	s.full = time.Now().Add(s.pause)
	s.mu.Unlock()
	if s.reserved && slices.ContainsFunc(batch, func(c *change) bool { return c.do == remove }) {
		s.release()
		s.settle(batch, s.write(batch))
		return
	}
	for _, a := range []action{remove, finish, add} {
		var part []*change
		for _, c := range batch {
			if c.do == a {
				part = append(part, c)
			}
		}
		switch {
		case len(part) == 0:
		case a == add || len(batch) == 1:
			s.refuse(part, fmt.Errorf("%w: %w", errFull, err))
		case len(part) < len(batch):
			s.settle(part, s.write(part))
		default:
			half := len(part) / 2
			s.settle(part[:half], s.write(part[:half]))
			s.settle(part[half:], s.write(part[half:]))
		}
	}
}

// apply updates the index with a batch that is on disk.
func (s *store) apply(batch []*change) {
	var added, removed []*entry
	s.mu.Lock()
	s.count.commits++
	s.count.changes += uint64(len(batch))
	for _, c := range batch {
		e := c.e
		switch {
		case c.do == add:
			s.index[e.id] = e
			s.waiting.PushBack(&e.age)
			s.count.stored++
			s.reserved = true
			added = append(added, e)
		case s.index[e.id] != e: // deleted before
		case c.do == finish && c.result == nil:
			s.account(e, -1)
			e.age.Remove()
			e.kind, e.at, e.size = c.header.kind, c.at, len(c.value)+entryBytes
			s.account(e, 1)
			s.done.PushBack(&e.age)
			s.count.executed++
			removed = append(removed, e)
		case c.do == remove:
			s.account(e, -1)
			s.entries--
			delete(s.index, e.id)
			e.age.Remove()
			if e.kind == kindRequest {
				removed = append(removed, e)
			}
		}
	}
	s.mu.Unlock()
	// No request is added and deleted in one batch, since no client knew its UUID.
	for _, e := range added {
		s.added(e)
	}
	for _, e := range removed {
		s.removed(e)
	}
	for _, c := range batch {
		close(c.done)
	}
}

// account adds the bytes of an entry n times. The caller holds s.mu.
func (s *store) account(e *entry, n int) {
	size := int64(n * e.size)
	s.bytes += size
	if e.kind != kindRequest {
		s.replies += size
	}
}

// refuse fails changes that are not on disk.
func (s *store) refuse(batch []*change, err error) {
	s.mu.Lock()
	for _, c := range batch {
		if c.do == add {
			s.entries--
			s.bytes -= int64(c.e.size)
		}
		c.result = err
	}
	s.mu.Unlock()
	for _, c := range batch {
		close(c.done)
	}
}

// isFull reports whether a transaction failed for lack of space before anything was
// flushed: then the file has not changed.
func isFull(err error) bool {
	// bbolt does not wrap the error when it cannot make the file larger.
	if strings.HasPrefix(err.Error(), "file resize error") {
		return true
	}
	// After a flush that finds the disk full, the content of the disk is unknown.
	var path *fs.PathError
	return errors.As(err, &path) && path.Op == "write" &&
		(errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EFBIG))
}

// fail records that the store has failed, also for the next one that opens the file.
func (s *store) fail(err error) {
	err = errors.Join(err, distrust(s.db.Path()))
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = err
		close(s.failed)
	}
}

// repliesBytes returns the bytes of the stored replies. The caller may hold dispatcher.mu.
func (s *store) repliesBytes() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.replies
}

// lookup returns the entry of a UUID. The error is nil if there is a reply, ErrPending, or
// errGone.
func (s *store) lookup(id UUID) (*entry, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.index[id]
	switch {
	case s.err != nil:
		return nil, s.err
	case e == nil:
		return nil, errGone
	case e.kind == kindRequest:
		return e, ErrPending
	}
	return e, nil
}

// read returns the message that is stored for an entry.
func (s *store) read(e *entry) (h header, frames [][]byte, err error) {
	var key [8]byte
	binary.BigEndian.PutUint64(key[:], e.key)
	var value []byte
	err = s.db.View(func(tx *bolt.Tx) error {
		value = append(value, tx.Bucket(messageBucket).Get(key[:])...)
		return nil
	})
	if err != nil {
		return header{}, nil, err
	}
	if len(value) == 0 {
		return header{}, nil, errGone
	}
	if h, frames, err = decode(value); err != nil || h.id != e.id {
		return header{}, nil, fmt.Errorf("%w: message %d: %w", ErrCorrupt, e.key, errDamaged)
	}
	return h, frames, nil
}

// expired returns up to n entries whose request or reply is older than the given limit.
func (s *store) expired(request, reply time.Duration, n int) (old []UUID) {
	now := time.Since(s.began)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range []struct {
		of    *list.List[entry]
		limit time.Duration
	}{{&s.waiting, request}, {&s.done, reply}} {
		for e := range l.of.All() {
			if now-e.at <= l.limit || len(old) == n {
				break
			}
			old = append(old, e.id)
		}
	}
	return old
}

// close ends the store after all queued changes, and returns the error of a store that
// has failed.
func (s *store) close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	s.mu.Unlock()
	wake.Signal(s.wake)
	s.running.Wait()
	return errors.Join(s.err, s.db.Close())
}
