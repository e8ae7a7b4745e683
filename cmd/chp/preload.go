package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"

	"clustermap/chp"
	"clustermap/internal/command"

	"github.com/spf13/cobra"
)

// preload is the dump of --load. It is nil without the flag.
type preload struct {
	in    io.ReadCloser
	name  string // name of the file for messages
	data  string // directory of --data, or ""
	bar   *progress
	lines *pairReader
	limit int // maximum size of a line in bytes
	count int // number of entries returned
}

// open opens the file of --load.
func (f *serveFlags) open(cmd *cobra.Command) (*preload, error) {
	if f.load == "" {
		return nil, nil
	}
	in, name, size, err := openDump(cmd, f.load)
	if err != nil {
		return nil, err
	}
	return &preload{in: in, name: name, data: f.data, bar: newProgress(cmd, "loading", size), limit: int(f.maxLine)}, nil
}

// entries returns the dump's entries for chp.ServerOptions.Preload. The iteration
// ends with ctx.
func (p *preload) entries(ctx context.Context) iter.Seq2[chp.Entry, error] {
	if p == nil {
		return nil
	}
	return func(yield func(chp.Entry, error) bool) {
		p.lines = newPairReader(io.TeeReader(command.Interruptible(ctx, p.in), p.bar), p.limit)
		for {
			e, err := p.lines.next()
			if errors.Is(err, io.EOF) {
				return
			}
			if !yield(e, err) || err != nil {
				return
			}
			p.count++
		}
	}
}

// finish reports the result of loading. err is the error of NewServer. over reports
// whether the command must end with the returned error.
func (p *preload) finish(ctx context.Context, cmd *cobra.Command, err error) (over bool, _ error) {
	if p == nil {
		return false, nil
	}
	p.bar.finish()
	p.in.Close()
	switch {
	case p.lines == nil: // loading has not begun
		if err == nil {
			fmt.Fprintf(cmd.ErrOrStderr(), "chp: %s has a map; %s was not loaded\n", p.data, p.name)
		}
		return false, nil
	case err != nil && ctx.Err() != nil:
		return true, nil // a signal while loading
	case err != nil:
		return true, fail(exitRefused, "%s, line %d: %s", p.name, p.lines.Number, plain(err))
	}
	_ = p.lines.report(cmd, p.count, "from "+p.name) // a server does not need a reader of it
	return false, nil
}
