// Package mirror keeps a directory and a subtree of a map equal: each file is a key, its content
// the value.
//
// Whatever happens on either side only makes it look: at all files and all keys, of which it then
// compares those that have changed with what both sides had last. So no event that is lost, and no
// order of events, leaves a difference.
//
// Keys come from others. A key is a file only if its name can be nothing else (see [fileOf]), and all
// files are reached by an [os.Root], so no link leads out of the directory. Files change by
// renaming; whoever reads one gets one version of it.
package mirror

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"clustermap/chp"

	"github.com/fsnotify/fsnotify"
)

// Options says what to keep equal to what.
type Options struct {
	Client *chp.Client // with the subtree Prefix
	Dir    string      // must exist
	Prefix string      // of the keys, with a slash at its end

	// The directions: changes of the map become files, and changes of files become keys. With
	// both, what was changed on both sides gets the map's value. With one, what the other
	// side changes is undone.
	ToDir, ToMap bool

	// Delete deletes, with one direction, also files or keys that were there before and that the
	// side which counts never had.
	Delete bool

	Once     bool          // ends when both are equal, or as equal as they can be
	MaxFile  int64         // larger files, in bytes, are left alone
	MaxFiles int           // more files and directories, or keys, are an error
	Timeout  time.Duration // of one update of the map

	Changed  func(what, name string) // is told of each change: see the constants
	Complain func(text string)       // is told what cannot be done, once
	Ready    func(files int)         // is called when both are equal for the first time
}

// What Changed is told.
const (
	Written = "written" // a file, from the map
	Removed = "removed" // a file
	Set     = "set"     // a key, from a file
	Deleted = "deleted" // a key
)

// ErrReplaced reports that the directory is no longer the one that it was at the beginning: then
// nothing is deleted because nothing is there.
var ErrReplaced = errors.New("the directory was removed or replaced")

// mirror is the state of Run.
type mirror struct {
	Options
	root     *os.Root
	identity os.FileInfo
	known    map[string]known // by name
	told     map[string]bool  // complaints
	watcher  *fsnotify.Watcher
	changes  int
}

// known is what both sides had last, and how they looked then.
type known struct {
	exists  bool
	content [sha256.Size]byte
	file    stamp
	key     int64 // sequence; 0 if there is none
	settled bool  // nothing is to be done while file and key stay as they are
}

// stamp tells versions of a file apart without reading it.
type stamp struct {
	exists bool
	size   int64
	time   time.Time
	fresh  bool // it was changed so short a time ago that the next change may have the same time
}

// side is what a file or a key has.
type side struct {
	exists, unknown bool // unknown: it cannot be read, or is an empty file, which no key can be
	value           []byte
	content         [sha256.Size]byte
}

func sideOf(value []byte) side {
	return side{exists: true, value: value, content: sha256.Sum256(value)}
}

// same reports whether it is what both sides had.
func (s side) same(k known) bool {
	return !s.unknown && s.exists == k.exists && (!s.exists || s.content == k.content)
}

// Run keeps both equal until the context ends. The client must be ACTIVE.
func Run(ctx context.Context, o Options) (err error) {
	m := &mirror{Options: o, known: map[string]known{}, told: map[string]bool{}}
	if m.root, err = os.OpenRoot(o.Dir); err != nil {
		return err
	}
	defer m.root.Close()
	if m.identity, err = m.root.Stat("."); err != nil {
		return err
	}
	w, err := o.Client.Watch()
	if err != nil {
		return err
	}
	defer w.Close()
	var files chan fsnotify.Event
	var faults chan error
	if m.watcher, err = fsnotify.NewWatcher(); err != nil {
		m.complain("files are looked at each %v only: %v", lookAnyway, err)
	} else {
		defer m.watcher.Close()
		files, faults = m.watcher.Events, m.watcher.Errors
	}
	watching, stop := context.WithCancel(ctx)
	defer stop()
	keys, failed := make(chan struct{}, 1), make(chan error, 1)
	go func() {
		for {
			if err := w.NextBatch(watching, func(chp.Event) bool { return true }); err != nil {
				failed <- err
				return
			}
			select {
			case keys <- struct{}{}:
			default:
			}
		}
	}()
	again := time.NewTicker(lookAnyway)
	defer again.Stop()
	for first := true; ; {
		before := m.changes
		equal, err := m.look(ctx)
		switch {
		case err != nil && ctx.Err() != nil:
			return nil
		case errors.Is(err, ErrReplaced), errors.Is(err, errTooMany), errors.Is(err, chp.ErrClosed):
			return err
		case err != nil:
			m.complain("%v", err)
		case equal && first:
			first = false
			m.Ready(m.equal())
		}
		if o.Once && (err != nil || m.changes == before) {
			return err
		}
		if o.Once {
			continue
		}
		if !pause(ctx, rest) { // what happens together is looked at together
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-keys:
		case <-files:
			drain(files)
		case <-faults: // some reports were dropped, perhaps
		case <-again.C:
		case err := <-failed:
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
	}
}

func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

func drain(files <-chan fsnotify.Event) {
	for {
		select {
		case <-files:
		default:
			return
		}
	}
}

// equal returns the number of files that are equal to keys.
func (m *mirror) equal() (n int) {
	for _, k := range m.known {
		if k.exists {
			n++
		}
	}
	return n
}

func (m *mirror) complain(format string, a ...any) {
	text := fmt.Sprintf(format, a...)
	if m.told[text] {
		return
	}
	if len(m.told) >= maxTold {
		clear(m.told)
	}
	m.told[text] = true
	m.Complain(text)
}

var errTooMany = errors.New("too many files or keys")

// look makes equal what has changed. It reports whether all is equal then, as far as can be.
func (m *mirror) look(ctx context.Context) (equal bool, err error) {
	if now, err := os.Stat(m.Dir); err != nil || !os.SameFile(now, m.identity) {
		return false, ErrReplaced
	}
	files, err := m.scan()
	if err != nil {
		return false, err
	}
	keys := map[string]int64{}
	for e := range m.Client.Prefix(m.Prefix) {
		name := string(e.Key[len(m.Prefix):])
		if why := unfit(name); why != "" {
			m.complain("the key %q is no file: %s", e.Key, why)
			continue
		}
		if len(keys) >= m.MaxFiles {
			return false, fmt.Errorf("%w: %s has more than %d keys", errTooMany, m.Prefix, m.MaxFiles)
		}
		keys[name] = e.Sequence
	}
	all := map[string]bool{}
	for name := range files {
		all[name] = true
	}
	for name := range keys {
		all[name] = true
	}
	for name := range m.known {
		all[name] = true
	}
	equal = true
	for _, name := range slices.Sorted(maps.Keys(all)) {
		k := m.known[name]
		if k.settled && k.file == files[name] && !k.file.fresh && k.key == keys[name] {
			continue
		}
		if err := m.reconcile(ctx, name, files[name]); err != nil {
			if ctx.Err() != nil || errors.Is(err, chp.ErrClosed) {
				return false, err
			}
			m.complain("%s: %v", name, err)
			equal = false
		}
	}
	return equal, nil
}

// scan returns the files that can be keys, and watches all directories.
func (m *mirror) scan() (map[string]stamp, error) {
	files, directories := map[string]stamp{}, 0
	err := fs.WalkDir(m.root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist) && name != ".":
			return nil // it was removed meanwhile
		case err != nil:
			return err
		case d.IsDir():
			if directories++; directories > m.MaxFiles {
				return fmt.Errorf("%w: %s has more than %d directories", errTooMany, m.Dir, m.MaxFiles)
			}
			m.watch(name)
			return nil
		case strings.HasPrefix(d.Name(), temporary):
			return nil
		case !d.Type().IsRegular():
			m.complain("%s is left alone: it is no regular file", name)
			return nil
		}
		if why := cmp.Or(unfit(name), tooLong(m.Prefix+name)); why != "" {
			m.complain("the file %q is no key: %s", name, why)
			return nil
		}
		info, err := d.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		} else if err != nil {
			return err
		}
		if len(files) >= m.MaxFiles {
			return fmt.Errorf("%w: %s has more than %d files", errTooMany, m.Dir, m.MaxFiles)
		}
		files[name] = stampOf(info)
		return nil
	})
	return files, err
}

func stampOf(info fs.FileInfo) stamp {
	return stamp{true, info.Size(), info.ModTime(), time.Since(info.ModTime()) < fresh}
}

// watch watches a directory, if that is possible: otherwise it is looked at now and then. A directory
// that was watched may be another one of that name by now.
func (m *mirror) watch(name string) {
	if m.watcher == nil {
		return
	}
	if err := m.watcher.Add(filepath.Join(m.Dir, filepath.FromSlash(name))); err != nil {
		m.complain("changes in %s are noticed within %v only: %v", name, lookAnyway, err)
	}
}

// reconcile makes a file and a key equal.
func (m *mirror) reconcile(ctx context.Context, name string, at stamp) error {
	k := m.known[name]
	entry, presence := m.Client.Lookup(m.Prefix + name)
	key := side{}
	if presence == chp.PresenceFound {
		key = sideOf(entry.Value)
	} else {
		entry.Sequence = 0
	}
	file, err := m.read(name, at)
	if err != nil {
		return err
	}
	settle := func(s side) {
		m.known[name] = known{exists: s.exists, content: s.content, file: at, key: entry.Sequence, settled: true}
		if !s.exists && !at.exists && entry.Sequence == 0 {
			delete(m.known, name)
		}
	}
	if !file.unknown && file.exists == key.exists && file.content == key.content {
		settle(key)
		return nil
	}
	foreign := !k.exists && !m.Delete // only one side ever had it
	switch keyNew, fileNew := !key.same(k), !file.same(k); {
	case m.ToDir && (keyNew || !m.ToMap):
		if !key.exists && foreign && !m.ToMap {
			break
		}
		if at, err = m.toFile(name, key); err != nil {
			return err
		}
		settle(key)
		return nil
	case m.ToMap && !file.unknown && (fileNew || !m.ToDir):
		if !file.exists && foreign && !m.ToDir {
			break
		}
		if entry.Sequence, err = m.toKey(ctx, name, file, entry.Sequence); err != nil {
			return err
		}
		settle(file)
		return nil
	}
	k.file, k.key, k.settled = at, entry.Sequence, true // left as it is
	m.known[name] = k
	return nil
}

func (m *mirror) stat(name string) (stamp, error) {
	info, err := m.root.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return stamp{}, nil
	} else if err != nil {
		return stamp{}, err
	}
	return stampOf(info), nil
}

// read returns what a file has.
func (m *mirror) read(name string, at stamp) (side, error) {
	switch {
	case !at.exists:
		return side{}, nil
	case at.size > m.MaxFile:
		m.complain("%s is left alone: it has more than %d bytes", name, m.MaxFile)
		return side{exists: true, unknown: true}, nil
	}
	f, err := m.root.OpenFile(name, os.O_RDONLY|nonBlock, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return side{unknown: true}, nil // the next look does not find it
	} else if err != nil {
		return side{}, err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return side{unknown: true}, err
	}
	value, err := io.ReadAll(io.LimitReader(f, m.MaxFile+1))
	if err != nil {
		return side{}, err
	}
	if len(value) == 0 || int64(len(value)) > m.MaxFile { // it is being written
		return side{exists: true, unknown: true}, nil
	}
	return sideOf(value), nil
}

// toFile makes a file what the key is, and returns what it made: not what is there by now, which somebody else may
// have changed since.
func (m *mirror) toFile(name string, key side) (made stamp, err error) {
	perm, replaces, err := m.place(name)
	if err != nil {
		return made, err
	}
	if !key.exists {
		if err := m.root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return made, err
		}
		m.changed(Removed, name)
		return made, nil
	}
	if err := m.root.MkdirAll(path.Dir(name), 0o777); err != nil {
		return made, err
	}
	written := path.Join(path.Dir(name), temporary+rand.Text())
	err = m.write(written, key.value, perm)
	if err == nil && replaces {
		err = m.root.Chmod(written, perm) // whatever the umask is
	}
	if err == nil {
		made, err = m.stat(written)
	}
	if err == nil {
		err = m.root.Rename(written, name)
	}
	if err != nil {
		_ = m.root.Remove(written) // the first error counts
		return made, err
	}
	m.changed(Written, name)
	return made, nil
}

// place checks that a name is, or can become, a regular file below directories that are no links. It
// returns the permissions that the file has, or is to have, and whether there is one.
func (m *mirror) place(name string) (perm fs.FileMode, exists bool, err error) {
	for at := path.Dir(name); at != "."; at = path.Dir(at) {
		if info, err := m.root.Lstat(at); err == nil && !info.IsDir() {
			return 0, false, fmt.Errorf("%s is no directory", at)
		}
	}
	info, err := m.root.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return 0o666, false, nil
	case err != nil:
		return 0, false, err
	case !info.Mode().IsRegular():
		return 0, false, errors.New("it is no regular file")
	}
	return info.Mode().Perm(), true, nil
}

func (m *mirror) write(name string, value []byte, perm fs.FileMode) error {
	f, err := m.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, perm)
	if err != nil {
		return err
	}
	_, err = f.Write(value)
	if err == nil {
		err = f.Sync() // else a crash could leave an empty file of that name
	}
	return errors.Join(err, f.Close())
}

// toKey makes a key what the file is, if the key is still what it was, and returns its sequence.
func (m *mirror) toKey(ctx context.Context, name string, file side, sequence int64) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, m.Timeout)
	defer cancel()
	condition := chp.IfAbsent()
	if sequence > 0 {
		condition = chp.IfSequence(sequence)
	}
	what, done := Set, int64(0)
	var err error
	if file.exists {
		done, err = m.Client.SetIf(ctx, m.Prefix+name, file.value, condition)
	} else {
		what = Deleted
		done, err = m.Client.DeleteIf(ctx, m.Prefix+name, condition)
	}
	if conflict := (*chp.ConflictError)(nil); errors.As(err, &conflict) {
		return 0, errors.New("the key was changed at the same time") // the replica will have it, which makes for another look
	} else if err != nil {
		return 0, err
	}
	m.changed(what, name)
	// Until the replica has it, the key would seem to have been changed back.
	if err := m.Client.WaitFor(ctx, done); err != nil {
		return 0, err
	}
	if !file.exists {
		done = 0
	}
	return done, nil
}

func (m *mirror) changed(what, name string) {
	m.changes++
	m.Changed(what, name)
}

// unfit returns why a name, behind the prefix, is not the same as key and as file, or "".
func unfit(name string) string {
	switch {
	case name == "":
		return "it has no name behind the prefix"
	case !fs.ValidPath(name):
		return "it is no path: empty, . or .. between its slashes"
	case strings.ContainsAny(name, "\x00\\"):
		return "it has a NUL or a backslash"
	case !filepath.IsLocal(filepath.FromSlash(name)):
		return "it is not local on this system"
	}
	for part := range strings.SplitSeq(name, "/") {
		if strings.HasPrefix(part, temporary) {
			return "it is like that of an unfinished file"
		}
		if len(part) > maxPart {
			return fmt.Sprintf("a part of it has more than %d bytes", maxPart)
		}
	}
	return ""
}

func tooLong(key string) string {
	if len(key) > maxKey {
		return fmt.Sprintf("with the prefix it has more than %d bytes", maxKey)
	}
	return ""
}
