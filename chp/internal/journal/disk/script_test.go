package disk

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"

	"clustermap/chp/commit"
	"clustermap/chp/internal/journal"
	"clustermap/chp/internal/ledger"
	"clustermap/chp/internal/state"
	"clustermap/internal/buf"
	"clustermap/internal/kvmsg"
	"clustermap/internal/store"
	"clustermap/internal/testenv"
	"clustermap/internal/timer"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestScripts runs a journal on a log that does what a script says: see testdata. To see
// what changes after a change of the code: go test -run TestScripts -update && git diff
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &world{log: &scriptedLog{}}
				testenv.Script(t, file, w.run)
				if w.journal != nil {
					w.log.let("write", "flush")
					_ = w.journal.Close()
				}
			})
		})
	}
}

// fullLog is one without space for another entry.
type fullLog struct{ *scriptedLog }

func (fullLog) Reserve() (int, error) { return 0, commit.ErrFull }
func (fullLog) Short() bool           { return false }

// TestOpenOfAFullLogLeavesNothing opens a log that takes no entry: there is no journal, and
// TestMain finds no goroutine of one.
func TestOpenOfAFullLogLeavesNothing(t *testing.T) {
	for _, log := range []*scriptedLog{{}, {entries: []commit.Entry{{Index: 1, Kind: kindMapID, Records: make([]byte, 16)}}}} {
		log.reopen()
		j, found, err := Open(Options{Log: fullLog{log}}, state.New(100))
		if j != nil || found != (Found{}) || !errors.Is(err, commit.ErrFull) {
			t.Errorf("%v, %v, %v; want no journal, %v", j, found, err, commit.ErrFull)
		}
	}
}

// world is a journal, the log below it, and the state that its batches belong to.
type world struct {
	log     *scriptedLog
	journal *Journal
	state   *state.State
	batches []batch // appended
}

type batch struct {
	index journal.Index
	last  int64
}

// run executes a command, waits until nothing happens any more, and returns what has
// happened.
func (w *world) run(command string, args []string) string {
	option := func(name, otherwise string) string {
		for _, a := range args {
			if value, ok := strings.CutPrefix(a, name+"="); ok {
				return value
			}
		}
		return otherwise
	}
	number := func(name string) int {
		n, _ := strconv.Atoi(option(name, "0"))
		return n
	}
	said := ""
	switch command {
	case "open":
		policy, err := commit.ParsePolicy(option("policy", "always"))
		if err != nil {
			return err.Error()
		}
		w.log.reopen()
		begin := int64(100)
		if w.state != nil {
			begin = w.state.Last() + 10 // the clock goes on
		}
		w.state, w.batches = state.New(begin), nil
		w.state.ID[0] = 1
		var found Found
		w.journal, found, err = Open(Options{Log: w.log, Policy: policy, Changed: w.log.changes}, w.state)
		if err != nil {
			return err.Error()
		}
		said = fmt.Sprintf("a map: %v, sequence %d, %d keys, next index %d\n", found.Map, w.state.Last(), w.state.Store.Len(), found.Last+1)
	case "append":
		e := state.Entry{Head: state.Head{Reign: 7, First: w.state.Last() + 1, At: timer.Now()}}
		for i := range max(number("updates"), 1) {
			key := fmt.Appendf(nil, "/%d", i)
			at := len(e.Wire)
			e.Wire = kvmsg.AppendRecord(e.Wire, key, 0, nil, nil, make([]byte, max(number("size"), 1)))
			e.Spans = append(e.Spans, buf.Span{Start: uint32(at), End: uint32(len(e.Wire)), Tag: kvmsg.HashKey(key)})
		}
		e.Count = uint32(len(e.Spans))
		if e.Counter = uint64(number("counter")); e.Counter > 0 {
			e.Client = ledger.ID{1}
		}
		pieces := slices.Clone(w.state.Append(&e))
		w.log.lent(pieces)
		index := w.journal.Append(e.Head, pieces, 0)
		w.state.Link(&e.Head, pieces, e.Spans)
		w.batches = append(w.batches, batch{index, e.Last()})
		if said = fmt.Sprintf("index %d: %d to %d\n", index, e.First, e.Last()); index == journal.Never {
			said = "not taken\n"
		}
	case "hold":
		w.log.hold(args...)
	case "let":
		w.log.let(args...)
	case "fail":
		w.log.fail(args[0])
	case "room":
		gone, cancel := context.WithCancel(context.Background())
		cancel()
		said = fmt.Sprintf("%v\n", w.journal.Room(gone))
	case "save":
		go func() {
			err := w.journal.Save(context.Background(), func() (*state.Image, journal.Index) {
				return w.state.Image(), w.batches[len(w.batches)-1].index
			})
			w.log.say("saved: %v", err)
		}()
	case "stored":
		go func() { w.log.say("stored: %v", w.journal.Stored(context.Background())) }()
	case "close":
		err := w.journal.Close()
		w.log.say("closed: %v", err)
	default:
		return "unknown command"
	}
	synctest.Wait()
	said += w.log.heard()
	if w.journal != nil {
		up := "nothing"
		for _, b := range w.batches {
			if !w.journal.Committed(b.index, b.last) {
				break
			}
			up = fmt.Sprintf("up to %d", b.last)
		}
		said += fmt.Sprintf("committed: %s; references: %d; grown: %d", up, w.state.Store.References(), w.journal.grown.Load())
	}
	return said
}

// scriptedLog is a log that holds writes and flushes, and fails, when a script says so. It
// tells what it does.
type scriptedLog struct {
	commit.Log

	mu      sync.Mutex
	entries []commit.Entry
	saved   []commit.Entry // the checkpoint
	synced  uint64
	gates   map[string]chan struct{} // closed when it may go on
	fails   map[string]bool
	said    []string
	told    uint64         // synced when it was last said
	changed bool           // since it was last said
	where   map[*byte]bool // where the bytes of pieces begin
}

func (l *scriptedLog) GathersParts() {}

func (l *scriptedLog) say(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.said = append(l.said, fmt.Sprintf(format, args...)+"\n")
}

func (l *scriptedLog) changes() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.changed = true
}

// heard returns what was said since the last call. What was flushed comes last and once:
// entries that are written one after the other may have one flush or several.
func (l *scriptedLog) heard() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.synced > l.told {
		l.said = append(l.said, fmt.Sprintf("flushed up to %d\n", l.synced))
		l.told = l.synced
	}
	if l.changed {
		l.said = append(l.said, "changed\n")
		l.changed = false
	}
	all := strings.Join(l.said, "")
	l.said = nil
	return all
}

func (l *scriptedLog) lent(pieces []store.Piece) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range pieces {
		l.where[&p.Wire()[0]] = true
	}
}

func (l *scriptedLog) reopen() {
	l.gates, l.fails, l.where = map[string]chan struct{}{}, map[string]bool{}, map[*byte]bool{}
}

func (l *scriptedLog) hold(what ...string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, w := range what {
		l.gates[w] = make(chan struct{})
	}
}

func (l *scriptedLog) let(what ...string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, w := range what {
		if g := l.gates[w]; g != nil {
			close(g)
			delete(l.gates, w)
		}
	}
}

func (l *scriptedLog) fail(what string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fails[what] = true
}

var errBroken = errors.New("broken")

// pass waits while something is held, and returns its error.
func (l *scriptedLog) pass(what string) error {
	l.mu.Lock()
	gate := l.gates[what]
	l.mu.Unlock()
	if gate != nil {
		<-gate
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fails[what] {
		return errBroken
	}
	return nil
}

func (l *scriptedLog) Replay(fn func(commit.Entry) error) (r commit.Replayed, err error) {
	for _, e := range append(slices.Clone(l.saved), l.entries...) {
		if err := fn(e); err != nil {
			return r, err
		}
	}
	r.Last = l.Last()
	return r, nil
}

func (l *scriptedLog) Append(entries ...commit.Entry) error {
	if err := l.pass("write"); err != nil {
		l.say("write: %v", err)
		return err
	}
	for _, e := range entries {
		inPlace := ""
		l.mu.Lock()
		for _, p := range e.Parts {
			if l.where[&p[0]] {
				inPlace = ", in place"
			}
		}
		e.Records, e.Parts = bytes.Join(append([][]byte{e.Records}, e.Parts...), nil), nil
		l.entries = append(l.entries, e)
		l.mu.Unlock()
		l.say("write %d: kind %d, %d updates%s", e.Index, e.Kind, e.Count, inPlace)
	}
	return nil
}

func (l *scriptedLog) Sync() error {
	l.mu.Lock()
	last := l.last()
	l.mu.Unlock()
	if err := l.pass("flush"); err != nil {
		l.say("flush: %v", err)
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.synced = last
	return nil
}

func (l *scriptedLog) Commit(uint64) {}

func (l *scriptedLog) last() uint64 {
	if n := len(l.entries); n > 0 {
		return l.entries[n-1].Index
	} else if len(l.saved) > 0 {
		return l.saved[0].Index
	}
	return 0
}

func (l *scriptedLog) Last() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last()
}

func (l *scriptedLog) Synced() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.synced
}

func (l *scriptedLog) Close() error { return nil }

// Checkpoint begins a checkpoint after the entry with an index.
func (l *scriptedLog) Checkpoint(index, sequence uint64) (commit.Checkpoint, error) {
	l.say("checkpoint of %d in place of %d", sequence, index)
	return &scriptedCheckpoint{log: l, index: index}, nil
}

type scriptedCheckpoint struct {
	log     *scriptedLog
	index   uint64
	entries []commit.Entry
	done    bool
}

func (c *scriptedCheckpoint) Append(e commit.Entry) error {
	if err := c.log.pass("save"); err != nil {
		return err
	}
	e.Index, e.Records = c.index, bytes.Clone(e.Records)
	c.entries = append(c.entries, e)
	return nil
}

func (c *scriptedCheckpoint) Commit() error {
	c.done = true
	l := c.log
	l.mu.Lock()
	defer l.mu.Unlock()
	l.saved = c.entries
	l.entries = slices.DeleteFunc(l.entries, func(e commit.Entry) bool { return e.Index <= c.index })
	return nil
}

func (c *scriptedCheckpoint) Abort() {
	if !c.done {
		c.log.say("checkpoint given up")
	}
}
