package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"

	"clustermap/internal/visible"
	"clustermap/sockets"
	"clustermap/zmtp"
)

// hangups has the files that the program reads again at SIGHUP, instead of ending.
var hangups rereads

// rereads is a list of files.
type rereads struct {
	mu    sync.Mutex
	files []Rereader
}

// Rereader is a file that a program can read again while it runs.
type Rereader interface {
	// Reread reads the file again, and returns what is in it now, such as "3 keys". After an error all stays
	// as it was.
	Reread() (now string, err error)

	// What returns the name of the file, the flag that names it, and what stays as it was after an error.
	What() (name, flag, stays string)
}

// AddReread makes the program read a file again at SIGHUP, instead of ending, and in Reread.
func AddReread(f Rereader) { hangups.add(f) }

// Reread reads again all files that are read again at SIGHUP, and tells the results. It returns the errors.
func Reread(program string, w io.Writer) error {
	var errs []error
	for _, f := range hangups.all() {
		name, flag, stays := f.What()
		now, err := f.Reread()
		if err != nil {
			errs = append(errs, fmt.Errorf("--%s: %w", flag, err))
			Say(w, fmt.Sprintf("%s: warning: %s: --%s: %s\n", program, stays, flag, visible.String(err.Error())))
			continue
		}
		Say(w, fmt.Sprintf("%s: read %s again: %s\n", program, visible.String(name), now))
	}
	return errors.Join(errs...)
}

func (r *rereads) add(f Rereader) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.files = append(r.files, f)
}

func (r *rereads) all() []Rereader {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.files
}

// allowedFile accepts the keys in the file that --curve-allow names, as they were when it was
// last read without an error, and some more.
type allowedFile struct {
	Keys
	name    string
	more    []zmtp.PublicKey
	current atomic.Pointer[allowed]
}

// allowed is the keys of a file at one time.
type allowed struct {
	accept sockets.Authenticator
	names  map[string]string // of those with a name, by their text
}

// named returns the names of keys by the text of each.
func named(names map[zmtp.PublicKey]string) map[string]string {
	all := map[string]string{}
	for key, name := range names {
		all[key.String()] = name
	}
	return all
}

// read reads the file. After an error the keys stay as they were.
func (f *allowedFile) read() (n int, err error) {
	names := map[zmtp.PublicKey]string{}
	keys, err := f.namedKeys(f.name, names)
	if err != nil {
		return 0, err
	}
	n = len(keys)
	f.current.Store(&allowed{sockets.AllowKeys(append(keys, f.more...)...), named(names)})
	return n, nil
}

// authenticate implements [sockets.Authenticator]. The user ID is the name behind the key in the
// file, or the key.
func (f *allowedFile) authenticate(ctx context.Context, r sockets.AuthRequest) (sockets.User, error) {
	now := f.current.Load()
	user, err := now.accept(ctx, r)
	if name := now.names[user.ID]; err == nil && name != "" {
		user.ID = name
	}
	return user, err
}

// What implements Rereader.
func (f *allowedFile) What() (name, flag, stays string) {
	return f.name, "curve-allow", "the accepted keys stay as they were"
}

// Reread implements Rereader.
func (f *allowedFile) Reread() (now string, err error) {
	n, err := f.read()
	return Count(n, "key"), err
}

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
			if len(hangups.all()) == 0 || terminal && !hasTerminal() {
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
