package main

import (
	"io"
	"time"

	"clustermap/internal/command"

	"github.com/schollz/progressbar/v3"
)

// progress is a progress bar in bytes on a terminal. Elsewhere it does nothing. It is a
// Writer for use with io.TeeReader.
type progress struct{ bar *progressbar.ProgressBar }

// newProgress shows a bar on w if w is a terminal. A negative size is unknown.
func newProgress(w io.Writer, size int64) progress {
	terminal := command.Terminal(w)
	if terminal == nil {
		return progress{}
	}
	return progress{progressbar.NewOptions64(size,
		progressbar.OptionSetWriter(terminal),
		progressbar.OptionSetDescription("loading"),
		progressbar.OptionShowBytes(true),
		progressbar.OptionThrottle(100*time.Millisecond),
		progressbar.OptionClearOnFinish(),
	)}
}

// Write counts bytes.
func (p progress) Write(b []byte) (int, error) {
	if p.bar != nil {
		p.bar.Add(len(b))
	}
	return len(b), nil
}

// finish removes the bar from the terminal.
func (p progress) finish() {
	if p.bar != nil {
		p.bar.Clear()
	}
}
