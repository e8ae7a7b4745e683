package main

import (
	"log/slog"
	"os"
	"sync"

	"clustermap/internal/command"
)

// auditFile appends to a file that somebody may rename and then have opened again.
type auditFile struct {
	name string

	mu   sync.Mutex
	file *os.File
}

// openAudit opens the file of --audit, or returns nil without the flag.
func (a *accessFlags) openAudit(stamp bool) (*auditFile, error) {
	switch {
	case a.every && a.audit == "":
		return nil, fail(exitUsage, "--audit-writes needs --audit")
	case a.every && !stamp:
		return nil, fail(exitUsage, "--audit-writes needs --stamp: without it nobody knows whose an update is")
	case a.audit == "":
		return nil, nil
	}
	f := &auditFile{name: a.audit}
	apply, _, err := f.load()
	if err == nil {
		err = apply()
	}
	if err != nil {
		return nil, fail(exitUsage, "--audit: %w", err)
	}
	command.AddSource(command.Source{Flag: "audit", Files: []string{f.name}, Written: true, Stays: "the former file is written on", Load: f.load})
	return f, nil
}

// load opens the file anew, which apply makes the one that is written to.
func (f *auditFile) load() (apply func() error, now string, err error) {
	file, err := os.OpenFile(f.name, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, "", err
	}
	return func() error {
		f.mu.Lock()
		defer f.mu.Unlock()
		former := f.file
		f.file = file
		if former != nil {
			former.Close()
		}
		return nil
	}, "it is written to", nil
}

// Write appends a line.
func (f *auditFile) Write(b []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.file.Write(b)
}

// Close closes the file.
func (f *auditFile) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.file.Close()
}

// logger returns a logger of lines of JSON.
func (f *auditFile) logger() *slog.Logger { return slog.New(slog.NewJSONHandler(f, nil)) }
