package titanic

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"time"

	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
)

// fileName is the store's file in its directory.
const fileName = "titanic.db"

// failedSuffix follows the name of the file in that of another one, which exists after a flush
// of the store has failed.
const failedSuffix = ".failed"

// openStore opens the store in a directory, and creates both if they do not exist.
func openStore(o Options, added, removed func(*entry)) (_ *store, err error) {
	dir := o.Dir
	defer func() {
		if _, known := errors.AsType[*StoreError](err); err != nil && !known {
			err = &StoreError{dir, err}
		}
	}()
	path := filepath.Join(dir, fileName)
	switch st, err := os.Stat(path); {
	case errors.Is(err, fs.ErrNotExist):
		if err := create(dir, path); err != nil {
			return nil, err
		}
	case err != nil:
		return nil, err
	case st.Size() == 0: // bbolt would initialize it
		return nil, fmt.Errorf("%w: %s is empty", ErrCorrupt, fileName)
	}
	s := &store{
		options: o,
		pause:   diskPause,
		added:   added,
		removed: removed,
		began:   time.Now(),
		wake:    make(chan struct{}, 1),
		failed:  make(chan struct{}),
		index:   make(map[UUID]*entry),
	}
	// When bbolt opens a file for writing, it reads all of it in a goroutine, in which a
	// damaged page ends the process. So load reads it first and returns an error.
	transaction, err := s.load(path)
	if err != nil {
		return nil, classify(err)
	}
	// Without the list of free pages in the file, commits write less. Opening rebuilds
	// the list.
	var file *os.File
	s.db, err = bolt.Open(path, 0o600, &bolt.Options{
		Timeout: lockTimeout, NoFreelistSync: true, FreelistType: bolt.FreelistMapType,
		OpenFile: func(name string, flag int, mode os.FileMode) (_ *os.File, err error) {
			file, err = os.OpenFile(name, flag, mode)
			return file, err
		},
	})
	if err != nil {
		return nil, classify(err)
	}
	if err := s.unchanged(path, file, transaction); err != nil {
		return nil, errors.Join(err, s.db.Close())
	}
	if _, err := os.Stat(path + failedSuffix); err == nil {
		if err := s.renew(path); err != nil {
			return nil, err
		}
		return openStore(o, added, removed)
	}
	// A process that was killed may have left what was not flushed. It was read, so it must not
	// be lost any more.
	if err := s.db.Sync(); err != nil {
		return nil, errors.Join(fmt.Errorf("%w: %w", ErrFailed, err), distrust(path), s.db.Close())
	}
	// Left by a process that was killed while it created the store.
	left, _ := filepath.Glob(filepath.Join(dir, fileName+".new*"))
	for _, name := range left {
		os.Remove(name)
	}
	s.update = s.db.Update
	s.running.Go(s.commit)
	return s, nil
}

// distrust records that a flush of a file has failed. That need not be on the disk: if the
// machine stops, the system's cache is gone, and with it what was not flushed.
func distrust(path string) error { return os.WriteFile(path+failedSuffix, nil, 0o600) }

// renew replaces the file of an open store by a copy, and closes it. After a flush has failed,
// the system's cache can have what the disk has not, and take it for written: no flush of the
// same file would write it. The copy has what the cache has.
func (s *store) renew(path string) error {
	copied, err := copyOf(path)
	if runtime.GOOS == "windows" { // cannot replace an open file
		err = errors.Join(err, s.db.Close())
	} else { // others cannot open it before it is replaced: see unchanged
		defer s.db.Close()
	}
	if err == nil {
		err = os.Rename(copied, path)
	}
	if err != nil {
		os.Remove(copied)
		return err
	}
	if err := syncDir(filepath.Dir(path)); err != nil {
		return err
	}
	if err := os.Remove(path + failedSuffix); !errors.Is(err, fs.ErrNotExist) { // another process may have copied the copy
		return err
	}
	return nil
}

// copyOf copies a file to a new one beside it, and flushes that.
func copyOf(path string) (name string, err error) {
	from, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer from.Close()
	f, err := os.CreateTemp(filepath.Dir(path), fileName+".new*") // mode 0600
	if err != nil {
		return "", err
	}
	// Not by the system, which may let both files share what the disk has.
	_, err = io.Copy(struct{ io.Writer }{f}, struct{ io.Reader }{from})
	if err == nil {
		err = f.Sync()
	}
	return f.Name(), errors.Join(err, f.Close())
}

// create makes the directory and an empty store in it. The file appears completely or not
// at all.
func create(dir, path string) error {
	if err := makeDir(dir); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, fileName+".new*")
	if err != nil {
		return err
	}
	temporary := f.Name()
	defer os.Remove(temporary)
	if err := f.Close(); err != nil {
		return err
	}
	db, err := bolt.Open(temporary, 0o600, &bolt.Options{Timeout: lockTimeout, NoFreelistSync: true})
	if err != nil {
		return classify(err)
	}
	err = db.Update(func(tx *bolt.Tx) error {
		format, err := tx.CreateBucket(formatBucket)
		if err == nil {
			err = format.Put(formatKey, formatValue)
		}
		if err == nil {
			_, err = tx.CreateBucket(messageBucket)
		}
		return err
	})
	if err := errors.Join(err, db.Close()); err != nil {
		return err
	}
	// Unlike a rename, a link does not replace a file that another process has created
	// meanwhile. Some file systems have no links.
	if err := os.Link(temporary, path); err != nil && !errors.Is(err, fs.ErrExist) {
		if err := os.Rename(temporary, path); err != nil {
			return err
		}
	}
	return syncDir(dir)
}

// makeDir makes a directory and its parents, and flushes the name of each.
func makeDir(dir string) error {
	dir = filepath.Clean(dir)
	_, err := os.Stat(dir)
	if parent := filepath.Dir(dir); errors.Is(err, fs.ErrNotExist) && parent != dir {
		if err := makeDir(parent); err != nil {
			return err
		}
		if err := os.MkdirAll(dir, 0o700); err != nil { // no error if another process was faster
			return err
		}
		return syncDir(parent)
	}
	return err
}

// syncDir flushes the names in a directory.
func syncDir(path string) error {
	if runtime.GOOS == "windows" {
		return nil // directories cannot be flushed there
	}
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// load builds the index, and returns the number of the last transaction.
func (s *store) load(path string) (transaction int, err error) {
	// Reading a truncated file causes a fault, and bbolt panics on invalid pages.
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %v", ErrCorrupt, p)
		}
	}()
	db, err := bolt.Open(path, 0o600, &bolt.Options{Timeout: lockTimeout, ReadOnly: true})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	wall := s.began.UnixNano()
	services := make(map[string]string) // one copy of each name
	var done []*entry
	err = db.View(func(tx *bolt.Tx) error {
		transaction = tx.ID()
		format, messages := tx.Bucket(formatBucket), tx.Bucket(messageBucket)
		if format == nil || messages == nil {
			return fmt.Errorf("%w: not a store of requests", ErrCorrupt)
		}
		if v := format.Get(formatKey); string(v) != string(formatValue) {
			return fmt.Errorf("%w: format %q is not known", ErrCorrupt, v)
		}
		s.reserved = tx.Bucket(reserveBucket) != nil
		return messages.ForEach(func(k, v []byte) error {
			h, _, err := decodeHeader(v)
			if err != nil || len(k) != 8 {
				return fmt.Errorf("%w: message %x: %w", ErrCorrupt, k, errDamaged)
			}
			name, known := services[h.service]
			if !known {
				name = h.service
				services[name] = name
			}
			e := newEntry(entry{
				id: h.id, service: name, key: binary.BigEndian.Uint64(k),
				kind: h.kind, size: len(v) + entryBytes,
				at: -time.Duration(max(0, wall-h.at)),
			})
			if s.index[e.id] != nil {
				return fmt.Errorf("%w: two messages %v", ErrCorrupt, e.id)
			}
			s.index[e.id] = e
			s.entries++
			s.account(e, 1)
			s.next = max(s.next, e.key)
			if e.kind == kindRequest {
				s.waiting.PushBack(&e.age)
			} else {
				done = append(done, e)
			}
			return nil
		})
	})
	slices.SortStableFunc(done, func(a, b *entry) int { return cmp.Compare(a.at, b.at) })
	for _, e := range done {
		s.done.PushBack(&e.age)
	}
	return transaction, err
}

// unchanged returns ErrLocked if another process has written since load, or replaced the file
// since it was opened.
func (s *store) unchanged(path string, opened *os.File, transaction int) error {
	here, err := opened.Stat()
	if err != nil {
		return err
	}
	if there, err := os.Stat(path); err != nil || !os.SameFile(here, there) {
		return ErrLocked
	}
	return s.db.View(func(tx *bolt.Tx) error {
		if tx.ID() != transaction {
			return ErrLocked
		}
		return nil
	})
}

// classify maps an error of bbolt to one of this package.
func classify(err error) error {
	switch {
	case errors.Is(err, bolterrors.ErrTimeout):
		return ErrLocked
	case errors.Is(err, bolterrors.ErrInvalid), errors.Is(err, bolterrors.ErrVersionMismatch), errors.Is(err, bolterrors.ErrChecksum):
		return fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return err
}
