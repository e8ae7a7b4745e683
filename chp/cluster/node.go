package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"sync"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"clustermap/chp/commit"
	"clustermap/chp/durable"
	"clustermap/internal/fifo"
)

// A Node is a member of a cluster. All methods are safe for concurrent use.
type Node struct {
	options   Options
	transport Transport
	disk      *disk
	applier   applier

	mu       sync.Mutex
	core     *core
	written  fifo.Queue[raftpb.Message] // written, and to be flushed
	writing  int                        // messages of raft that are being written
	room     chan struct{}              // closed when there is more room
	moves    chan struct{}              // closed when the status changes
	closing  bool
	finished chan struct{} // closed when Close has begun to end goroutines
	failed   chan struct{}
	wake     [threads]*sync.Cond

	goroutines sync.WaitGroup
}

// The goroutines of a node that wait for work.
const (
	atAppend = iota
	atFlush
	atApply
	atParts
	atPulls
	atOut
	threads
)

// Open opens the directory of a node, gives the owner what is known to be committed, and lets the node
// take part in its cluster. Owner and transport are the node's until Close, also after an error.
func Open(o Options) (*Node, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	log, err := durable.Open(o.Dir, durable.Options{})
	if err != nil {
		return nil, err
	}
	n, err := open(o, log, &metaFile{path: filepath.Join(o.Dir, metaName)})
	if err != nil {
		return nil, errors.Join(err, o.Transport.Close(), log.Close())
	}
	return n, nil
}

func open(o Options, log Log, store metaStore) (*Node, error) {
	d := &disk{log: log, store: store, always: o.Policy.IsAlways(), synced: o.Synced}
	start, err := begin(&o, d)
	if err != nil {
		return nil, err
	}
	n := &Node{
		options: o, transport: o.Transport, disk: d,
		room: make(chan struct{}), moves: make(chan struct{}), finished: make(chan struct{}), failed: make(chan struct{}),
	}
	for i := range n.wake {
		n.wake[i] = sync.NewCond(&n.mu)
	}
	if n.core, err = newCore(&n.options, d, start); err != nil {
		return nil, err
	}
	n.applier = applier{core: n.core, mu: &n.mu, owner: o.Owner, disk: d, peers: n.peers, last: start.last}
	n.peers(start.members.Addresses)
	if err := n.transport.Start(n.receive); err != nil {
		return nil, err
	}
	for _, run := range []func(){n.tick, n.append, n.flush, n.apply, n.parts, n.pulls, n.send} {
		n.goroutines.Go(run)
	}
	if !d.always {
		n.goroutines.Go(n.flushLater)
	}
	return n, nil
}

// peers tells the transport who the members are, and those whom Options names, of which a node that
// joins knows no more.
func (n *Node) peers(members map[uint64]string) {
	all := map[uint64]string{}
	for id, a := range n.options.Peers {
		all[id] = a
	}
	for id, a := range members {
		all[id] = a
	}
	delete(all, n.options.Node)
	n.transport.Peers(all)
}

// wakeAll wakes the goroutines that have work. The caller holds n.mu.
func (n *Node) wakeAll() {
	c := n.core
	for i, work := range [threads]bool{
		atAppend: c.appends.Len() > 0, atFlush: n.written.Len() > 0, atApply: c.tasks.Len() > 0,
		atParts: c.parts.Len() > 0, atPulls: c.pulls.Len() > 0, atOut: len(c.out) > 0,
	} {
		if work {
			n.wake[i].Signal()
		}
	}
	if c.err != nil && !n.isFailed() {
		close(n.failed)
		n.changedRoom()
		n.options.Logger.Error("the node has failed", "error", c.err)
		for i := range n.wake {
			n.wake[i].Broadcast()
		}
	}
}

func (n *Node) isFailed() bool {
	select {
	case <-n.failed:
		return true
	default:
		return false
	}
}

// do calls a method of the core.
func (n *Node) do(f func(*core)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	f(n.core)
	n.wakeAll()
}

// wait waits until there is work, and reports false when the goroutine must end. The caller
// holds n.mu.
func (n *Node) wait(thread int, work func() bool) bool {
	for !work() {
		if n.closing || n.core.err != nil {
			return false
		}
		n.wake[thread].Wait()
	}
	return n.core.err == nil
}

func (n *Node) receive(m *Message) {
	if m.Kind == KindNote {
		if n.options.Note != nil {
			n.options.Note(m.From, m.Note)
		}
		return
	}
	n.do(func(c *core) {
		if c.isNew(m) { // before it can help to elect a leader, or to commit
			n.mu.Unlock()
			err := n.disk.heard(m.From)
			n.mu.Lock()
			if err != nil {
				c.fail(err)
			}
		}
		c.receive(m)
	})
}

// Tell sends a note to the owner of another node, in order with other notes to it. It does not wait, and
// reports false if the note is dropped. It may get lost also otherwise, as when the connection breaks. The
// bytes must not be changed.
func (n *Node) Tell(to uint64, note []byte) bool {
	return n.transport.Send(&Message{Kind: KindNote, From: n.options.Node, To: to, Note: note})
}

func (n *Node) tick() {
	t := time.NewTicker(n.options.ElectionTimeout / electionTicks)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			n.do((*core).tick)
		case <-n.finished:
			return
		case <-n.failed:
			return
		}
	}
}

// append writes what raft has for the disk. What has responses goes on to flush; the log is written
// while it is flushed.
func (n *Node) append() {
	c := n.core
	n.mu.Lock()
	defer n.mu.Unlock()
	for n.wait(atAppend, func() bool { return c.appends.Len() > 0 }) {
		m := c.appends.Pop()
		var install *receipt
		if m.Snapshot != nil {
			install = c.installs.Front()
		}
		n.writing++
		n.mu.Unlock()
		err := n.disk.write(&m, install)
		n.mu.Lock()
		n.writing--
		if err != nil {
			c.fail(fmt.Errorf("%w: %w", ErrFailed, err))
		}
		n.written.Push(m)
		n.wakeAll()
	}
}

// flush flushes, once for all that was written meanwhile, and delivers the responses.
func (n *Node) flush() {
	c := n.core
	var all []raftpb.Message
	n.mu.Lock()
	defer n.mu.Unlock()
	for n.wait(atFlush, func() bool { return n.written.Len() > 0 }) {
		flush := false
		for n.written.Len() > 0 {
			m := n.written.Pop()
			flush = flush || n.disk.needsFlush(&m)
			all = append(all, m)
		}
		if flush {
			n.mu.Unlock()
			err := n.disk.flush()
			n.mu.Lock()
			if err != nil {
				c.fail(fmt.Errorf("%w: %w", ErrFailed, err))
			}
		}
		for i := range all {
			c.stored(&all[i])
		}
		clear(all)
		all = all[:0]
		n.wakeAll()
	}
}

// flushLater flushes at the intervals of a policy that does not flush each write.
func (n *Node) flushLater() {
	every := n.options.Policy.Every()
	if every == 0 {
		every = neverInterval
	}
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			if err := n.disk.flush(); err != nil {
				n.do(func(c *core) { c.fail(fmt.Errorf("%w: %w", ErrFailed, err)) })
			}
		case <-n.finished:
			return
		case <-n.failed:
			return
		}
	}
}

func (n *Node) apply() {
	c := n.core
	n.mu.Lock()
	for n.wait(atApply, func() bool { return c.tasks.Len() > 0 }) {
		t := c.tasks.Pop()
		n.mu.Unlock()
		n.applier.run(&t)
		n.mu.Lock()
		if t.status != nil {
			close(n.moves)
			n.moves = make(chan struct{})
		}
		n.changedRoom()
		n.wakeAll()
	}
	// The owner hears of each proposal.
	var rest []Position
	for c.pending.all.Len() > 0 {
		rest = append(rest, c.pending.take())
	}
	for c.tasks.Len() > 0 {
		if t := c.tasks.Pop(); t.save != nil {
			t.save(nil, ErrClosed)
		}
	}
	n.mu.Unlock()
	if len(rest) > 0 {
		n.options.Owner.Lost(rest, false)
	}
}

// changedRoom wakes those who wait for room. The caller holds n.mu.
func (n *Node) changedRoom() {
	close(n.room)
	n.room = make(chan struct{})
}

func (n *Node) parts() {
	c := n.core
	n.mu.Lock()
	defer n.mu.Unlock()
	for n.wait(atParts, func() bool { return c.parts.Len() > 0 }) {
		m := c.parts.Pop()
		n.mu.Unlock()
		c.take(m, &n.mu)
		n.mu.Lock()
		n.wakeAll()
	}
}

func (n *Node) pulls() {
	c := n.core
	n.mu.Lock()
	defer n.mu.Unlock()
	for n.wait(atPulls, func() bool { return c.pulls.Len() > 0 }) {
		s := c.pulls.Pop()
		n.mu.Unlock()
		c.fill(s, &n.mu)
		n.mu.Lock()
		n.wakeAll()
	}
}

func (n *Node) send() {
	c := n.core
	var all []*Message
	n.mu.Lock()
	defer n.mu.Unlock()
	for n.wait(atOut, func() bool { return len(c.out) > 0 }) {
		all, c.out = c.out, all[:0]
		n.mu.Unlock()
		dropped := map[uint64]bool(nil)
		for _, m := range all {
			if !n.transport.Send(m) && m.Kind == KindRaft {
				if dropped == nil {
					dropped = map[uint64]bool{}
				}
				dropped[m.To] = true
			}
		}
		clear(all)
		n.mu.Lock()
		for id := range dropped {
			c.unreachable(id)
		}
		n.wakeAll()
	}
}

// Propose appends an entry to the log of the cluster, if this node leads in a term: the one that
// Owner.Changed was told with Leading. Index and Epoch of the entry are ignored; its bytes are
// copied. It does not wait. The owner hears what becomes of the entry, once: in
// Owner.Committed with Own, or in Owner.Lost.
func (n *Node) Propose(term uint64, e *commit.Entry) (Position, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closing {
		return Position{}, ErrClosed
	}
	at, err := n.core.propose(term, e)
	n.wakeAll()
	return at, err
}

// Room waits until less than Options.RoomBytes of proposals are under way.
func (n *Node) Room(ctx context.Context) error {
	for {
		n.mu.Lock()
		err, room, wait := n.core.err, n.core.pending.bytes < n.options.RoomBytes, n.room
		if n.closing {
			err = ErrClosed
		}
		n.mu.Unlock()
		if err != nil || room {
			return err
		}
		select {
		case <-wait:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// ReadIndex returns an index of the log that is not less than that of any entry that was committed
// anywhere before the call, once the owner has everything up to it. Calls that wait share the
// questions to the majority.
func (n *Node) ReadIndex(ctx context.Context) (uint64, error) {
	type result struct {
		index uint64
		err   error
	}
	done := make(chan result, 1)
	var wait *readWait
	n.do(func(c *core) {
		if n.closing {
			done <- result{0, ErrClosed}
			return
		}
		wait = c.read(func(index uint64, err error) { done <- result{index, err} })
	})
	select {
	case r := <-done:
		return r.index, r.err
	case <-ctx.Done():
		if wait != nil {
			wait.gone.Store(true)
		}
		return 0, ctx.Err()
	}
}

// Change changes the members; only the leader can. It returns when the change is in force. The
// error is ErrUnknown if the term was lost meanwhile.
func (n *Node) Change(ctx context.Context, all ...Change) error {
	done := make(chan error, 1)
	n.do(func(c *core) {
		if n.closing {
			done <- ErrClosed
			return
		}
		c.change(all, func(err error) { done <- err })
	})
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", ErrUnknown, ctx.Err())
	}
}

// Transfer hands the term over to another node, or to the one that has most of the log if it is
// 0, and returns when this node does not lead any more. What it has proposed stays.
func (n *Node) Transfer(ctx context.Context, to uint64) error {
	var err error
	n.do(func(c *core) { err = c.move(to) })
	for err == nil {
		n.mu.Lock()
		leads, wait := n.core.status().Role == RoleLeader, n.moves
		n.mu.Unlock()
		if !leads {
			return nil
		}
		select {
		case <-wait:
		case <-ctx.Done():
			err = ctx.Err()
		case <-n.finished:
			err = ErrClosed
		case <-n.failed:
			err = ErrFailed
		}
	}
	return err
}

// Status returns who leads, as far as this node knows.
func (n *Node) Status() (s Status) {
	n.do(func(c *core) { s = c.status() })
	return s
}

// Members returns the members.
func (n *Node) Members() (all []Member) {
	n.do(func(c *core) { all = c.list() })
	for i := range all {
		all[i].Heard = all[i].Node == n.options.Node || n.disk.hasHeard(all[i].Node)
	}
	return all
}

// Applied returns the index up to which the owner has everything.
func (n *Node) Applied() (i uint64) {
	n.do(func(c *core) { i = c.applied })
	return i
}

// Save writes an image of the owner's state to the disk, in place of the entries up to it. Only
// one call may run at a time.
func (n *Node) Save(ctx context.Context) error {
	type result struct {
		cut *cut
		err error
	}
	done := make(chan result, 1)
	n.do(func(c *core) {
		if n.closing || c.err != nil {
			done <- result{nil, ErrClosed}
			return
		}
		c.tasks.Push(task{cut: true, save: func(k *cut, err error) { done <- result{k, err} }})
	})
	r := <-done
	if r.err != nil {
		return r.err
	}
	defer r.cut.release()
	return n.disk.checkpoint(ctx, r.cut)
}

// Failed returns a channel that is closed when the node has failed.
func (n *Node) Failed() <-chan struct{} { return n.failed }

// Err returns why the node has failed, or nil.
func (n *Node) Err() (err error) {
	n.do(func(c *core) { err = c.err })
	return err
}

// Close ends the node. What was proposed and is not known to be committed is reported as lost,
// and unknown. Before a restart, a leader calls Transfer.
func (n *Node) Close() error {
	n.mu.Lock()
	if n.closing {
		n.mu.Unlock()
		n.goroutines.Wait()
		return nil
	}
	n.closing = true
	close(n.finished)
	n.core.reads.end(ErrClosed)
	n.core.changing.end(ErrUnknown)
	n.core.changing = nil
	n.changedRoom()
	for i := range n.wake {
		n.wake[i].Broadcast()
	}
	n.mu.Unlock()
	err := n.transport.Close()
	n.goroutines.Wait()
	c := n.core
	n.mu.Lock()
	c.endStreams()
	c.cut.release()
	c.cut = nil
	c.stream.abort()
	for c.installs.Len() > 0 {
		r := c.installs.Pop()
		r.accepted = false
		r.abort()
	}
	failed := c.err
	n.mu.Unlock()
	return errors.Join(failed, err, n.disk.close())
}

var _ io.Closer = (*Node)(nil)
