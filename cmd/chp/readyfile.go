package main

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"clustermap/chp"
)

// readyFile is the name of a file that exists while a server is ready, or "" for none. It
// has the endpoints for the clients' --server, one a line.
type readyFile string

// remove removes the file, which a server that was killed may have left too.
func (f readyFile) remove() error {
	if f == "" {
		return nil
	}
	if err := os.Remove(string(f)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fail(exitRefused, "cannot remove --ready-file: %v", err)
	}
	return nil
}

// await writes the file when the server is ready. Readers never see a part of it.
func (f readyFile) await(ctx context.Context, server *chp.Server) error {
	if f == "" {
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
func (f readyFile) write(content []byte) (err error) {
	temporary, err := os.CreateTemp(filepath.Dir(string(f)), filepath.Base(string(f))+".*.tmp")
	if err != nil {
		return err
	}
	_, err = temporary.Write(content)
	// Every user may read the server's ports.
	if err = errors.Join(err, temporary.Chmod(0o644), temporary.Close()); err == nil {
		err = os.Rename(temporary.Name(), string(f))
	}
	if err != nil {
		_ = os.Remove(temporary.Name())
	}
	return err
}
