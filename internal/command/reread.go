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

// rereads is a list of files of keys.
type rereads struct {
	mu    sync.Mutex
	files []*allowedFile
}

func (r *rereads) add(f *allowedFile) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.files = append(r.files, f)
}

func (r *rereads) all() []*allowedFile {
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

// reread reads the file again and tells the result.
func (f *allowedFile) reread(w io.Writer) {
	n, err := f.read()
	if err != nil {
		Say(w, fmt.Sprintf("%s: warning: the accepted keys stay as they were: --curve-allow: %v\n", f.Program, err))
		return
	}
	Say(w, fmt.Sprintf("%s: read %s again: %s\n", f.Program, visible.String(f.name), Count(n, "key")))
}

// untilHangup returns a context that ends with SIGHUP, if that comes because the terminal of
// the program was closed, or if there is nothing that it can read again. The signal never has
// its default effect: a shell repeats it.
func untilHangup(ctx context.Context, w io.Writer) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGHUP)
	terminal := hasTerminal()
	go func() { // lasts as long as the process
		for range signals {
			files := hangups.all()
			if len(files) == 0 || terminal && !hasTerminal() {
				cancel(errors.New("hangup signal received"))
				continue
			}
			for _, f := range files {
				f.reread(w)
			}
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
