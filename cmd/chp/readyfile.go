package main

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"clustermap/chp"
)

// readyFile is a file that exists while a server is ready. It has the endpoints for the
// clients' --server, one a line.
type readyFile struct {
	name    string // "" for none
	written []byte // its content, from when this server has written it
}

// check returns an error if there is something that a server cannot have left, such as a
// directory or a device.
func (f *readyFile) check() error {
	if f.name == "" {
		return nil
	}
	if info, err := os.Lstat(f.name); err == nil && !info.Mode().IsRegular() {
		return fail(exitRefused, "cannot replace --ready-file %s: it is not a regular file", f.name)
	}
	return nil
}

// clear removes the file that a server that was killed may have left.
func (f *readyFile) clear() error {
	if f.name == "" {
		return nil
	}
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
	if now, err := os.ReadFile(f.name); err == nil && !bytes.Equal(now, f.written) {
		return nil
	}
	return f.clear()
}

// await writes the file when the server is ready. Readers never see a part of it.
func (f *readyFile) await(ctx context.Context, server *chp.Server) error {
	if f.name == "" {
		return nil
	}
	select {
	case <-server.Ready():
	case <-ctx.Done():
		return nil
	}
	var lines []byte
	for _, e := range server.AllEndpoints() {
		first := e.Snapshot
		if first == "" {
			first = e.Publisher // Clone model 1
		}
		lines = append(append(lines, first...), '\n')
	}
	if err := f.write(lines); err != nil {
		return fail(exitRefused, "cannot write --ready-file: %v", err)
	}
	return nil
}

// write creates the file with its content.
func (f *readyFile) write(content []byte) (err error) {
	temporary, err := os.CreateTemp(filepath.Dir(f.name), filepath.Base(f.name)+".*.tmp")
	if err != nil {
		return err
	}
	_, err = temporary.Write(content)
	// Every user may read the server's ports.
	if err = errors.Join(err, temporary.Chmod(0o644), temporary.Close()); err == nil {
		err = os.Rename(temporary.Name(), f.name)
	}
	if err != nil {
		_ = os.Remove(temporary.Name())
		return err
	}
	f.written = content
	return nil
}
