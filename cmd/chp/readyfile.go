package main

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"clustermap/chp"
)

// readyFile is a file that exists while a server is ready. It has the endpoints for the
// clients' --server, one a line. The server holds it (see hold), so that the next one knows
// a file that was left behind.
type readyFile struct {
	name    string   // "" for none
	written []byte   // its content, from when this server has written it
	file    *os.File // held
}

// begin removes the file that a server which was killed has left, but not the one that a
// running server holds. It returns an error if the file cannot be written, or if there is
// something that a server cannot have left: a directory, a device, or a file with other text.
func (f *readyFile) begin() error {
	if f.name == "" {
		return nil
	}
	info, err := os.Lstat(f.name)
	switch {
	case err == nil && !info.Mode().IsRegular():
		return fail(exitRefused, "cannot replace --ready-file %s: it is not a regular file", f.name)
	case err == nil && !f.left(info.Size()):
		return fail(exitRefused, "cannot replace --ready-file %s: its text is not that of a server", f.name)
	case err == nil && !held(f.name):
		if err := f.clear(); err != nil {
			return err
		}
	}
	trial, err := f.create()
	if err == nil {
		err = errors.Join(trial.Close(), os.Remove(trial.Name()))
	}
	return f.unwritten(err)
}

// left reports whether the file can be what a server has left, or is empty, as from mktemp.
func (f *readyFile) left(size int64) bool {
	if size > 1<<20 {
		return false
	}
	text, err := os.ReadFile(f.name)
	for line := range bytes.Lines(text) {
		if !bytes.Contains(line, []byte("://")) {
			return false
		}
	}
	return err == nil
}

// create creates the temporary file that write renames.
func (f *readyFile) create() (*os.File, error) {
	return os.CreateTemp(filepath.Dir(f.name), filepath.Base(f.name)+".*.tmp")
}

// unwritten returns the failure of a command that cannot write the file. It does not name
// the temporary file, which the user does not know.
func (f *readyFile) unwritten(err error) error {
	if number := syscall.Errno(0); errors.As(err, &number) {
		err = number
	}
	if err == nil {
		return nil
	}
	return fail(exitRefused, "cannot write --ready-file %s: %w", f.name, err)
}

func (f *readyFile) clear() error {
	if err := os.Remove(f.name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fail(exitRefused, "cannot remove --ready-file: %v", err)
	}
	return nil
}

// remove removes the file that was written, unless another server has replaced it. Servers
// that run at the same time have different endpoints.
func (f *readyFile) remove() error {
	if f.written == nil {
		return nil
	}
	defer f.file.Close()
	if now, err := os.ReadFile(f.name); err == nil && !bytes.Equal(now, f.written) {
		return nil
	}
	return f.clear()
}

// write creates the file with the endpoints. Readers never see a part of it.
func (f *readyFile) write(endpoints []chp.Endpoints) error {
	if f.name == "" {
		return nil
	}
	var lines []byte
	for _, e := range endpoints {
		first := e.Snapshot
		if first == "" {
			first = e.Publisher // Clone model 1
		}
		lines = append(append(lines, first...), '\n')
	}
	temporary, err := f.create()
	if err != nil {
		return f.unwritten(err)
	}
	_, err = temporary.Write(lines)
	// Every user may read the server's ports.
	if err = errors.Join(err, temporary.Chmod(0o644)); err == nil {
		hold(temporary)
		err = os.Rename(temporary.Name(), f.name)
	}
	if err != nil {
		temporary.Close()
		_ = os.Remove(temporary.Name())
		return f.unwritten(err)
	}
	f.written, f.file = lines, temporary
	return nil
}
