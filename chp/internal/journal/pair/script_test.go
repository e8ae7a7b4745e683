package pair

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"clustermap/chp/internal/journal"
	"clustermap/chp/internal/state"
	"clustermap/internal/store"
	"clustermap/internal/testenv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestScripts does with a journal what a script says, and looks at it after each step: see
// testdata. To see what changes after a change of the code:
// go test -run TestScripts -update && git diff
func TestScripts(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			t.Parallel()
			w := &world{t: t, keys: store.New(store.Options{})}
			testenv.Script(t, file, w.run)
			w.journal.Restored()
			if n := w.keys.References(); n != 0 {
				t.Errorf("%d references are left", n)
			}
		})
	}
}

// looks is the time-out, in looks.
const looks = 20

// world is a journal, its owner's numbers, and the connections of the other server.
type world struct {
	t         *testing.T
	journal   *Journal
	local     localJournal
	keys      *store.Map
	newest    state.Reign
	followers []*Follower
	batches   []batch // not in the map
	published int64
	part      Part
}

type batch struct {
	index journal.Index
	last  int64
}

// localJournal commits up to an index.
type localJournal struct {
	journal.Memory
	slow  bool
	next  journal.Index
	until journal.Index
}

func (l *localJournal) AtOnce() bool { return !l.slow }

func (l *localJournal) Append(state.Head, []store.Piece, int) journal.Index {
	l.next++
	return l.next
}

func (l *localJournal) Committed(i journal.Index, _ int64) bool { return !l.slow || i <= l.until }

func (l *localJournal) Room(context.Context) error {
	return errors.New("room is the local one's matter")
}

// run executes a command, commits what can be, and returns what there is to see.
func (w *world) run(command string, args []string) string {
	number := func(name string, otherwise int64) int64 {
		for _, a := range args {
			if value, ok := strings.CutPrefix(a, name+"="); ok {
				n, err := strconv.ParseInt(value, 10, 64)
				if err != nil {
					w.t.Fatal(err)
				}
				return n
			}
		}
		return otherwise
	}
	said := ""
	// The connections are numbered from 1; the last one is meant if nothing else is said.
	at := number("of", int64(len(w.followers)))
	follower := func() *Follower { return w.followers[at-1] }
	switch command {
	case "new":
		if w.journal != nil {
			w.journal.Restored()
		}
		w.batches, w.followers = nil, nil
		w.local = localJournal{}
		w.local.slow = slices.Contains(args, "disk")
		w.journal = New(&w.local, int(number("acks", 2)), looks)
		w.journal.Bound(int(number("bound", 64<<20)))
		w.newest = state.Reign{ID: 7, Last: number("last", 100)}
		w.published = w.newest.Last
	case "append":
		for range number("batches", 1) {
			h, pieces := tailPieces(w.t, w.keys, w.newest.Last+1, int(number("updates", 1)), int(number("size", 1)))
			h.Reign = 7
			i := w.journal.Append(h, pieces, len(w.batches))
			w.newest.Last = h.Last()
			w.batches = append(w.batches, batch{i, h.Last()})
			w.commit()
		}
	case "flushed":
		w.local.until = journal.Index(number("up", int64(w.local.next)))
	case "follow":
		theirs := state.Reign{ID: uint64(number("reign", 7)), Last: number("last", 0)}
		w.followers = append(w.followers, w.journal.Follow(!slices.Contains(args, "stranger"), theirs, w.newest))
	case "send":
		more := w.journal.Next(follower(), &w.part)
		switch {
		case follower().NeedsMap():
			w.journal.Copy(follower(), w.published, len(w.batches), int(number("most", 1<<20)))
			said = fmt.Sprintf("send the map up to %d\n", w.published)
		case more != nil:
			said = "nothing to send\n"
		case w.part.Len() == 0:
			said = "it is gone, and too far behind\n"
		default:
			first, last, n := int64(0), int64(0), w.part.Len()
			if err := w.part.Each(func(h *state.Head, _ []store.Piece) error {
				if first == 0 {
					first = h.First
				} else if h.First != last+1 {
					return errors.New("a gap")
				}
				last = h.Last()
				return nil
			}); err != nil {
				w.t.Error(err)
			}
			said = fmt.Sprintf("send %d batches, %d to %d\n", n, first, last)
		}
	case "have":
		sequence, _ := strconv.ParseInt(args[0], 10, 64)
		begins, err := w.journal.Acknowledged(follower(), sequence, w.newest.Last)
		if err != nil {
			said = err.Error() + "\n"
		}
		if begins {
			said = "updates wait for it from now on\n"
		}
	case "look":
		for range number("times", 1) {
			w.journal.Look(w.newest.Last, true, !slices.Contains(args, "isolated"))
		}
	case "leaves":
		w.journal.Leave(follower())
	case "lost":
		w.journal.Lose(follower())
	case "alone":
		w.journal.Alone()
	case "yield":
		w.journal.Yield()
	default:
		return "unknown command"
	}
	w.commit()
	waits := ""
	if w.journal.Waits() {
		waits = ", updates wait for the other server"
	}
	said += fmt.Sprintf("published up to %d of %d, %.2f of the tail to send%s\n", w.published, w.newest.Last, w.journal.Fill(), waits)
	if f := w.journal.Follower(); f != nil {
		said += fmt.Sprintf("%d: %v, sent %d, has %d, idle %d, behind %d", slices.Index(w.followers, f)+1, f.Progress, f.Sent, f.Have, f.Idle, f.behind)
	}
	return said
}

// commit publishes what is committed.
func (w *world) commit() {
	for len(w.batches) > 0 && w.journal.Committed(w.batches[0].index, w.batches[0].last) {
		w.published = w.batches[0].last
		w.batches = w.batches[1:]
	}
}
