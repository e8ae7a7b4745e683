package main

import (
	"iter"
	"os"
	"time"

	"clustermap/chp"
	"clustermap/chp/commit"
	"clustermap/internal/command"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"
)

// progressAfter is how long something must last before there is a bar for it.
const progressAfter = time.Second

// progress is a progress bar on a terminal, for what lasts above a second. Elsewhere it does nothing.
// It is a Writer for use with io.TeeReader. One goroutine at a time may use it.
type progress struct {
	terminal *os.File // nil elsewhere
	options  []progressbar.Option
	size     int64
	begun    time.Time
	done     int64
	bar      *progressbar.ProgressBar // nil until it is shown
}

// newProgress returns a bar on the standard error of a command, for a number of bytes. A negative
// size is unknown.
func newProgress(cmd *cobra.Command, what string, size int64) *progress {
	p := newCount(cmd, what, size)
	p.options = append(p.options, progressbar.OptionShowBytes(true))
	return p
}

// newCount is newProgress for things that are counted.
func newCount(cmd *cobra.Command, what string, size int64) *progress {
	p := &progress{terminal: command.Terminal(cmd.ErrOrStderr()), size: size, begun: time.Now()}
	p.options = []progressbar.Option{
		progressbar.OptionSetWriter(p.terminal),
		progressbar.OptionSetDescription(what),
		progressbar.OptionThrottle(100 * time.Millisecond),
		progressbar.OptionClearOnFinish(),
	}
	return p
}

// add counts n more.
func (p *progress) add(n int) {
	if p.terminal == nil {
		return
	}
	p.done += int64(n)
	switch {
	case p.bar != nil:
		_ = p.bar.Add(n) // what a terminal does not show is lost
	case time.Since(p.begun) >= progressAfter:
		p.bar = progressbar.NewOptions64(p.size, p.options...)
		_ = p.bar.Add64(p.done)
	}
}

// Write counts bytes.
func (p *progress) Write(b []byte) (int, error) {
	p.add(len(b))
	return len(b), nil
}

// finish removes the bar from the terminal.
func (p *progress) finish() {
	if p.bar != nil {
		_ = p.bar.Clear()
	}
}

// entries counts the entries of a map that pass.
func (p *progress) entries(all iter.Seq[chp.Entry]) iter.Seq[chp.Entry] {
	return func(yield func(chp.Entry) bool) {
		for e := range all {
			if p.add(1); !yield(e) {
				return
			}
		}
	}
}

// reading returns check, which also counts the bytes of the entries of a log that it gets.
func (p *progress) reading(check func(commit.Entry) error) func(commit.Entry) error {
	return func(e commit.Entry) error {
		p.add(len(e.Records))
		return check(e)
	}
}

// checkpoint counts the bytes that are written to a checkpoint or a backup.
func (p *progress) checkpoint(to commit.Checkpoint) commit.Checkpoint { return &countedState{to, p} }

type countedState struct {
	commit.Checkpoint
	p *progress
}

func (s *countedState) Append(e commit.Entry) error {
	s.p.add(len(e.Records))
	return s.Checkpoint.Append(e)
}
