package command

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"clustermap/internal/visible"
)

// Source is something that a program has from files, and reads again while it runs: at SIGHUP, when it is asked to (Reread),
// and when they have changed (WatchSources).
type Source struct {
	Flag  string   // that names the files
	Files []string // at least one
	Stays string   // what stays as it was after an error, such as "the rights stay as they were"

	// Load reads the files, and changes nothing: apply puts into effect what is in them, of which now is a word, such as
	// "3 keys".
	Load func() (apply func() error, now string, err error)

	// Written says that the program writes the file, which it only opens again: it is not watched.
	Written bool
}

// sources has what the program reads again at SIGHUP, instead of ending.
var sources sourceList

type sourceList struct {
	mu  sync.Mutex // held while one is read
	all []*watched
}

// watched is a source and what its files had when they were last looked at.
type watched struct {
	Source
	sum [sha256.Size]byte
}

// AddSource adds a source whose files are about to be read for the first time.
func AddSource(s Source) {
	w := &watched{Source: s}
	w.sum = w.content()
	sources.mu.Lock()
	defer sources.mu.Unlock()
	sources.all = append(sources.all, w)
}

func (l *sourceList) some() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.all) > 0
}

// Watches reports whether WatchSources has something to look at.
func Watches() bool {
	sources.mu.Lock()
	defer sources.mu.Unlock()
	return slices.ContainsFunc(sources.all, func(s *watched) bool { return !s.Written })
}

// Reread reads again everything that is read again at SIGHUP, and tells the results. It returns the errors.
func Reread(program string, w io.Writer) error {
	sources.mu.Lock()
	defer sources.mu.Unlock()
	var errs []error
	for _, s := range sources.all {
		s.sum = s.content()
		errs = append(errs, s.read(program, w))
	}
	return errors.Join(errs...)
}

// lookInterval is how often WatchSources looks at the files.
const lookInterval = time.Second

// WatchSources looks at the files until the context ends, and reads those again whose content has changed. It tells the results,
// of each content once.
func WatchSources(ctx context.Context, program string, w io.Writer) {
	ticker := time.NewTicker(lookInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		sources.look(program, w)
	}
}

// look reads the sources again whose content has changed.
func (l *sourceList) look(program string, w io.Writer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.all {
		if sum := s.content(); !s.Written && sum != s.sum {
			s.sum = sum
			_ = s.read(program, w) // it has told
		}
	}
}

// read reads the files, puts into effect what they have, and tells.
func (s *Source) read(program string, w io.Writer) error {
	apply, now, err := s.Load()
	if err == nil {
		err = apply()
	}
	if err != nil {
		text := strings.TrimPrefix(err.Error(), "--"+s.Flag+": ")
		Say(w, fmt.Sprintf("%s: warning: %s: --%s: %s\n", program, s.Stays, s.Flag, visible.String(text)))
		return fmt.Errorf("--%s: %s", s.Flag, text)
	}
	Say(w, fmt.Sprintf("%s: read %s again: %s\n", program, visible.String(strings.Join(s.Files, ", ")), now))
	return nil
}

// content returns a sum of the content of the files, and of the errors to read them.
func (s *Source) content() (sum [sha256.Size]byte) {
	h := sha256.New()
	for _, name := range s.Files {
		if s.Written {
			continue
		}
		f, err := os.Open(name)
		if err == nil {
			_, err = io.Copy(h, io.LimitReader(f, maxLooked))
			f.Close()
		}
		if failed := (*fs.PathError)(nil); errors.As(err, &failed) {
			err = failed.Err
		}
		fmt.Fprintf(h, "\x00%v\x00", err)
	}
	h.Sum(sum[:0])
	return sum
}

// maxLooked bounds what is looked at of a file; what reads it has limits of its own.
const maxLooked = 16 << 20

// untilHangup returns a context that ends with SIGHUP, if that comes because the terminal of
// the program was closed, or if there is nothing that it can read again. The signal never has
// its default effect: a shell repeats it.
func untilHangup(ctx context.Context, program string, w io.Writer) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGHUP)
	terminal := hasTerminal()
	go func() { // lasts as long as the process
		for range signals {
			if !sources.some() || terminal && !hasTerminal() {
				cancel(errors.New("hangup signal received"))
				continue
			}
			_ = Reread(program, w) // it has told
		}
	}()
	return ctx, func() { cancel(nil) }
}

// hasTerminal reports whether the process has a controlling terminal that is not closed.
func hasTerminal() bool {
	tty, err := os.Open("/dev/tty")
	if err == nil {
		_ = tty.Close()
	}
	return err == nil
}
