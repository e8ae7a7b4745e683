package mirror

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"clustermap/chp"
	"clustermap/internal/testenv"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a directory, a server, and a client with the keys below /p/.
type world struct {
	t   *testing.T
	dir string
	s   *chp.Server
	c   *chp.Client

	mu         sync.Mutex
	complaints []string
	changes    []string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	ctx := testenv.Context(t)
	quiet := slog.New(slog.DiscardHandler)
	s, err := chp.NewServer(chp.ServerOptions{Endpoints: []string{"tcp://127.0.0.1:*"}, Logger: quiet})
	testenv.Must(t, err)
	testenv.Must(t, s.Listen(ctx))
	served := make(chan error, 1)
	go func() { served <- s.Serve(context.Background()) }()
	t.Cleanup(func() {
		testenv.Must(t, s.Close())
		testenv.Must(t, <-served)
	})
	c, err := chp.NewClient(chp.ClientOptions{Servers: []string{s.Endpoints().Snapshot}, Subtrees: []string{"/p/"}, KeepOnEmpty: true, Logger: quiet})
	testenv.Must(t, err)
	t.Cleanup(func() { c.Close() })
	testenv.Must(t, c.WaitActive(ctx))
	return &world{t: t, dir: filepath.Join(t.TempDir(), "dir"), s: s, c: c}
}

func (w *world) file(name, value string) {
	w.t.Helper()
	path := filepath.Join(w.dir, name)
	testenv.Must(w.t, os.MkdirAll(filepath.Dir(path), 0o777))
	testenv.Must(w.t, os.WriteFile(path, []byte(value), 0o600))
}

func (w *world) key(name, value string) {
	w.t.Helper()
	ctx := testenv.Context(w.t)
	seq, err := w.s.SetSync(ctx, "/p/"+name, []byte(value))
	testenv.Must(w.t, err)
	testenv.Must(w.t, w.c.WaitFor(ctx, seq))
}

// options are those of a run in both directions.
func (w *world) options() Options {
	testenv.Must(w.t, os.MkdirAll(w.dir, 0o777))
	return Options{
		Client: w.c, Dir: w.dir, Prefix: "/p/", ToDir: true, ToMap: true, MaxFile: 1 << 10, MaxFiles: 100, Timeout: testenv.Hang,
		Changed: func(what, name string) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.changes = append(w.changes, what+" "+name)
		},
		Complain: func(text string) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.complaints = append(w.complaints, text)
		},
		Ready: func(int) {},
	}
}

func (w *world) once(o Options) {
	w.t.Helper()
	o.Once = true
	testenv.Must(w.t, Run(testenv.Context(w.t), o))
}

// start runs until the test ends, and returns when both are equal.
func (w *world) start(o Options) {
	w.t.Helper()
	ready := make(chan struct{})
	o.Ready = func(int) { close(ready) }
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, o) }()
	w.t.Cleanup(func() {
		cancel()
		testenv.Must(w.t, <-ended)
	})
	select {
	case <-ready:
	case err := <-ended:
		w.t.Fatal(err)
	}
}

func (w *world) files() (all []string) {
	w.t.Helper()
	err := filepath.WalkDir(w.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return nil
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return nil // it was removed meanwhile
		}
		name, _ := filepath.Rel(w.dir, path)
		all = append(all, filepath.ToSlash(name)+"="+string(b))
		return nil
	})
	testenv.Must(w.t, err)
	return all
}

func (w *world) keys() (all []string) {
	for e := range w.s.Sorted("/p/") {
		all = append(all, strings.TrimPrefix(string(e.Key), "/p/")+"="+string(e.Value))
	}
	return all
}

func (w *world) expect(files, keys []string) {
	w.t.Helper()
	slices.Sort(files)
	slices.Sort(keys)
	testenv.Eventually(w.t, fmt.Sprintf("files %q and keys %q", files, keys), func() bool {
		f, k := w.files(), w.keys()
		slices.Sort(f)
		slices.Sort(k)
		return slices.Equal(f, files) && slices.Equal(k, keys)
	})
}

// Each direction does what it says with what is there at the beginning.
func TestDirections(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		toDir, toMap, remove bool
		files, keys          []string
	}{
		"both":               {true, true, false, []string{"both=key", "a/file=f", "a/key=k"}, []string{"both=key", "a/file=f", "a/key=k"}},
		"to the dir":         {true, false, false, []string{"both=key", "a/file=f", "a/key=k"}, []string{"both=key", "a/key=k"}},
		"to the dir, delete": {true, false, true, []string{"both=key", "a/key=k"}, []string{"both=key", "a/key=k"}},
		"to the map":         {false, true, false, []string{"both=file", "a/file=f"}, []string{"both=file", "a/file=f", "a/key=k"}},
		"to the map, delete": {false, true, true, []string{"both=file", "a/file=f"}, []string{"both=file", "a/file=f"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.file("both", "file")
			w.file("a/file", "f")
			w.key("both", "key")
			w.key("a/key", "k")
			o := w.options()
			o.ToDir, o.ToMap, o.Delete = c.toDir, c.toMap, c.remove
			w.once(o)
			w.expect(c.files, c.keys)
			w.changes = nil
			w.once(o)
			if len(w.changes)+len(w.complaints) > 0 {
				t.Errorf("the second time: %q, %q", w.changes, w.complaints)
			}
		})
	}
}

// Changes of either side reach the other one: new ones, other values, deletions, new directories, and
// files that editors replace.
func TestChangesOfBothSides(t *testing.T) {
	t.Parallel()
	ctx := testenv.Context(t)
	w := newWorld(t)
	w.key("a", "1")
	w.start(w.options())
	w.expect([]string{"a=1"}, []string{"a=1"})
	w.key("a", "2")
	w.key("deep/er/b", "3")
	w.expect([]string{"a=2", "deep/er/b=3"}, []string{"a=2", "deep/er/b=3"})
	w.file("deep/er/b", "4")
	w.file("new/c", "5")
	w.expect([]string{"a=2", "deep/er/b=4", "new/c=5"}, []string{"a=2", "deep/er/b=4", "new/c=5"})
	w.file("new/c.tmp~", "6")
	testenv.Must(t, os.Rename(filepath.Join(w.dir, "new/c.tmp~"), filepath.Join(w.dir, "new/c")))
	testenv.Must(t, os.Remove(filepath.Join(w.dir, "a")))
	w.expect([]string{"deep/er/b=4", "new/c=6"}, []string{"deep/er/b=4", "new/c=6"})
	_, err := w.s.DeleteSync(ctx, "/p/deep/er/b")
	testenv.Must(t, err)
	w.expect([]string{"new/c=6"}, []string{"new/c=6"})
	testenv.Must(t, os.RemoveAll(filepath.Join(w.dir, "new")))
	w.expect(nil, nil)
	w.file("new/c", "7") // in a directory of the same name
	w.expect([]string{"new/c=7"}, []string{"new/c=7"})
}

// With one direction, what the other side changes is undone.
func TestOneDirectionUndoes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.key("a", "1")
	o := w.options()
	o.ToMap = false
	w.start(o)
	w.file("a", "mine")
	w.file("other", "stays")
	w.expect([]string{"a=1", "other=stays"}, []string{"a=1"})
	testenv.Must(t, os.Remove(filepath.Join(w.dir, "a")))
	w.expect([]string{"a=1", "other=stays"}, []string{"a=1"})

	w = newWorld(t)
	w.file("a", "1")
	o = w.options()
	o.ToDir = false
	w.start(o)
	w.key("a", "theirs")
	w.key("other", "stays")
	w.expect([]string{"a=1"}, []string{"a=1", "other=stays"})
}

// What somebody does to a file as soon as it is written is noticed.
func TestFileIsRemovedAsSoonAsItIsWritten(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.key("a", "1")
	o := w.options()
	o.ToMap = false
	removed := false
	o.Changed = func(string, string) {
		if !removed {
			removed = true
			testenv.Must(t, os.Remove(filepath.Join(w.dir, "a")))
		}
	}
	w.start(o)
	w.expect([]string{"a=1"}, []string{"a=1"})
}

// No key leads out of the directory, through a link or to a special file, and none changes what is
// there in its place. What can be a file becomes one all the same.
func TestKeysStayInTheDirectory(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	outside := filepath.Join(filepath.Dir(w.dir), "outside")
	testenv.Must(t, os.MkdirAll(outside, 0o777))
	testenv.Must(t, os.WriteFile(filepath.Join(outside, "secret"), []byte("secret"), 0o600))
	w.file("isfile", "f")
	w.file("isdir/x", "x")
	testenv.Must(t, os.Symlink(outside, filepath.Join(w.dir, "link")))
	testenv.Must(t, os.Symlink("isdir", filepath.Join(w.dir, "inner")))
	testenv.Must(t, os.Symlink(filepath.Join(outside, "secret"), filepath.Join(w.dir, "linked")))
	bad := []string{
		"../up", "a/../../up", "./here", "a/./b", "a//b", "/abs", "trailing/", "..", ".", "nul\x00", `back\slash`, ".chp-sync-x", "d/.chp-sync-x/y",
		"link/in", "link/secret", "inner/x2", "linked", "isfile/below", "isdir",
	}
	for _, name := range bad {
		if !strings.Contains(name, "\x00") { // no key can have one
			w.key(name, "evil")
		}
	}
	w.key("good", "g")
	w.key("é ü\n", "odd")
	o := w.options()
	w.once(o)
	want := []string{"good=g", "isdir/x=x", "isfile=f", "é ü\n=odd"}
	got := w.files()
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("files %q, want %q", got, want)
	}
	if all, err := os.ReadDir(outside); err != nil || len(all) != 1 {
		t.Errorf("%v, %v", all, err)
	}
	if b, err := os.ReadFile(filepath.Join(outside, "secret")); err != nil || string(b) != "secret" {
		t.Errorf("%q, %v", b, err)
	}
	if all, err := os.ReadDir(filepath.Dir(w.dir)); err != nil || len(all) != 2 {
		t.Errorf("%v, %v", all, err)
	}
	for _, k := range w.keys() {
		if strings.HasSuffix(k, "secret") {
			t.Errorf("the key %q has what a link leads to", k)
		}
	}
	if len(w.complaints) < len(bad)-1 {
		t.Errorf("%d complaints about %d names: %q", len(w.complaints), len(bad), w.complaints)
	}
}

// Files that are too large or empty, or that cannot be keys, change no key, and a key that is there
// stays.
func TestFilesThatAreNoValues(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.key("k", "1")
	w.start(w.options())
	w.file("large", strings.Repeat("x", 1<<10+1))
	w.file("empty", "")
	w.file(strings.Repeat("n", 253), "long")
	w.file("k", "") // an editor that truncates first
	w.file("marker", "m")
	testenv.Eventually(t, "it has looked", func() bool { return slices.Contains(w.keys(), "marker=m") })
	if got := w.keys(); !slices.Equal(got, []string{"k=1", "marker=m"}) {
		t.Errorf("keys %q", got)
	}
	w.file("k", "2")
	testenv.Eventually(t, "the value that is written then", func() bool { return slices.Contains(w.keys(), "k=2") })
}

// Nothing is deleted because the directory has gone, or another one is in its place.
func TestReplacedDirectoryDeletesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.key("k", "1")
	o := w.options()
	ready := make(chan struct{})
	o.Ready = func(int) { close(ready) }
	ended := make(chan error, 1)
	go func() { ended <- Run(testenv.Context(t), o) }()
	<-ready
	testenv.Must(t, os.Rename(w.dir, w.dir+".old"))
	testenv.Must(t, os.Mkdir(w.dir, 0o777))
	w.key("k", "2") // so that it looks
	if err := <-ended; !errors.Is(err, ErrReplaced) {
		t.Errorf("%v", err)
	}
	if got := w.keys(); !slices.Equal(got, []string{"k=2"}) {
		t.Errorf("keys %q", got)
	}
}

// There is a bound on files and on keys.
func TestTooMany(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for i := range 11 {
		w.file(fmt.Sprint(i), "v")
	}
	o := w.options()
	o.MaxFiles, o.Once = 10, true
	if err := Run(testenv.Context(t), o); !errors.Is(err, errTooMany) {
		t.Errorf("%v", err)
	}
	if got := w.keys(); got != nil {
		t.Errorf("keys %q", got)
	}
}

// A file keeps its permissions, and a reader never sees a part of it.
func TestFilesAreReplacedAtomically(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	values := [2]string{strings.Repeat("a", 1000), strings.Repeat("b", 1000)}
	w.file("f", values[0])
	testenv.Must(t, os.Chmod(filepath.Join(w.dir, "f"), 0o640))
	w.start(w.options())
	for i := range 20 {
		w.key("f", values[i%2])
		for {
			b, err := os.ReadFile(filepath.Join(w.dir, "f"))
			testenv.Must(t, err)
			if !slices.Contains(values[:], string(b)) {
				t.Fatalf("%d bytes: %.20q", len(b), b)
			}
			if string(b) == values[i%2] {
				break
			}
		}
	}
	if info, err := os.Stat(filepath.Join(w.dir, "f")); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}
