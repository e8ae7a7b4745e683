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

// preload is the dump that a server begins with. A nil *preload is the absence of
// one.
type preload struct {
	in    io.ReadCloser
	name  string // of the file, for messages
	bar   progress
	lines *pairReader
	limit int // bytes of a line
	count int // entries handed out
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
	return &preload{in: in, name: name, bar: newProgress(cmd.ErrOrStderr(), size), limit: int(f.maxLine)}, nil
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

// finish ends the loading, whose outcome is err, and reports whether the command
// is over with that.
func (p *preload) finish(ctx context.Context, cmd *cobra.Command, err error) (over bool, _ error) {
	if p == nil {
		return false, nil
	}
	p.bar.finish()
	p.in.Close()
	switch {
	case p.lines == nil: // the server did not get so far
		return false, nil
	case err != nil && ctx.Err() != nil:
		return true, nil // asked to end while loading
	case err != nil:
		return true, fail(exitRefused, "%s, line %d: %s", p.name, p.lines.number, plain(err))
	}
	skipped := ""
	if p.lines.skipped > 0 {
		skipped = fmt.Sprintf("; skipped %d whose time to live is over", p.lines.skipped)
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "chp: loaded %s from %s%s\n", keys(p.count), p.name, skipped)
	return false, nil
}
