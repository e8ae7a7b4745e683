package sockettest

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"clustermap/internal/queue"
	"clustermap/internal/testenv"
)

// FreePort returns an endpoint at which nothing listens, and which is the test's own.
func FreePort(t testing.TB) string {
	t.Helper()
	return fmt.Sprintf("tcp://127.0.0.1:%d", testenv.FreePort(t))
}

// SourcePort returns a port to connect from. Another process may take it for a while,
// so a socket must try again.
func SourcePort(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	testenv.Must(t, err)
	defer l.Close()
	return fmt.Sprint(l.Addr().(*net.TCPAddr).Port)
}

// HasIPv6 skips a test where there is none.
func HasIPv6(t testing.TB) {
	t.Helper()
	l, err := net.Listen("tcp6", "[::1]:0")
	if err != nil {
		t.Skipf("no IPv6 here: %v", err)
	}
	l.Close()
}

// Open makes a socket that is closed at the end of the test.
func Open[S io.Closer, O any](t testing.TB, make func(O) (S, error), o O) S {
	t.Helper()
	s, err := make(o)
	testenv.Must(t, err)
	t.Cleanup(func() { s.Close() })
	return s
}

// Bind makes a socket that is bound to a port of its own, also when it has been closed:
// a late connection to the port meets no socket of another test.
func Bind[S interface {
	io.Closer
	Bind(context.Context, string) error
}, O any](t testing.TB, make func(O) (S, error), o O) S {
	t.Helper()
	s := Open(t, make, o)
	testenv.Must(t, s.Bind(testenv.Context(t), FreePort(t)))
	return s
}

// Connect makes a socket that is connected to an endpoint.
func Connect[S interface {
	io.Closer
	Connect(string) error
}, O any](t testing.TB, make func(O) (S, error), o O, endpoint string) S {
	t.Helper()
	s := Open(t, make, o)
	testenv.Must(t, s.Connect(endpoint))
	return s
}

// Says sends messages of one frame.
func Says(t testing.TB, s interface {
	Send(context.Context, ...[]byte) error
}, messages ...string) {
	t.Helper()
	for _, m := range messages {
		testenv.Must(t, s.Send(testenv.Context(t), []byte(m)))
	}
}

// Wants receives messages and compares them, their frames joined by spaces.
func Wants[M ~[][]byte](t testing.TB, s interface {
	Recv(context.Context) (M, error)
}, want ...string) {
	t.Helper()
	ctx := testenv.Context(t)
	for i, w := range want {
		m, err := s.Recv(ctx)
		if err != nil {
			t.Fatalf("message %d, %q: %v", i, w, err)
		}
		if got := strings.Join(Texts(m), " "); got != w {
			t.Fatalf("message %d is %q, want %q", i, got, w)
		}
	}
}

// WantRecv receives a message and compares it, frame by frame.
func WantRecv[M ~[][]byte](t testing.TB, recv func() (M, error), want ...string) {
	t.Helper()
	m, err := recv()
	testenv.Must(t, err)
	if got := fmt.Sprintf("%q", Texts(m)); got != fmt.Sprintf("%q", want) {
		t.Errorf("%s came in place of %q", got, want)
	}
}

// Drained takes the queued messages, without waiting, and returns their first frames.
func Drained[M ~[][]byte](t testing.TB, s interface{ TryRecv() (M, error) }) (got []string) {
	t.Helper()
	for {
		m, err := s.TryRecv()
		if errors.Is(err, queue.ErrWouldBlock) {
			return got
		}
		testenv.Must(t, err)
		got = append(got, string(m[0]))
	}
}

// WantQueued receives the queued messages, without waiting, and compares their first frames.
func WantQueued[M ~[][]byte](t testing.TB, s interface{ TryRecv() (M, error) }, want ...string) {
	t.Helper()
	if got := Drained(t, s); !slices.Equal(got, want) {
		t.Errorf("%q is queued, want %q", got, want)
	}
}

// Fill sends until the socket would wait, and returns the number of messages.
func Fill(t testing.TB, send func(frames ...[]byte) error, frames ...[]byte) (n int) {
	t.Helper()
	for ; n < 1_000_000; n++ {
		if err := send(frames...); errors.Is(err, queue.ErrWouldBlock) {
			return n
		} else {
			testenv.Must(t, err)
		}
	}
	t.Fatal("the queue is never full")
	return 0
}

// ServeZAP has a ROUTER answer every request for authentication (RFC 27) with the frames that
// answer returns.
func ServeZAP[M ~[][]byte](t testing.TB, router interface {
	io.Closer
	Bind(context.Context, string) error
	Recv(context.Context) (M, error)
	Send(context.Context, ...[]byte) error
}, answer func(request []string) []string) {
	t.Helper()
	testenv.Must(t, router.Bind(testenv.Context(t), "inproc://zeromq.zap.01"))
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			m, err := router.Recv(context.Background())
			if err != nil {
				return // closed
			}
			reply := [][]byte{m[0]}
			for _, frame := range answer(Texts(m[1:])) {
				reply = append(reply, []byte(frame))
			}
			_ = router.Send(context.Background(), reply...) // as above
		}
	}()
	t.Cleanup(func() {
		router.Close()
		<-done
	})
}

// Texts is a message as strings.
func Texts[M ~[][]byte](m M) []string {
	s := make([]string, len(m))
	for i, f := range m {
		s[i] = string(f)
	}
	return s
}

// Show is a message as text, its long frames by size and sum.
func Show(frames ...string) string {
	for i, f := range frames {
		if len(f) > 100 {
			frames[i] = fmt.Sprintf("%d bytes, %08x", len(f), crc32.ChecksumIEEE([]byte(f)))
		}
	}
	return fmt.Sprintf("%q", frames)
}

// Running starts a proxy and returns a function that ends it and checks that it
// ended as it should.
func Running(t testing.TB, p interface{ Run(context.Context) error }) (end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(testenv.Context(t))
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	end = sync.OnceFunc(func() {
		t.Helper()
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("the proxy ended with %v", err)
		}
	})
	t.Cleanup(end)
	return end
}

// SocketDir is a directory with a path short enough for sockets.
func SocketDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "s-")
	testenv.Must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// SocketPath is a path in such a directory.
func SocketPath(t testing.TB) string { return filepath.Join(SocketDir(t), "s") }

// AbstractName returns an abstract name that no other process has, or skips the test.
func AbstractName(t testing.TB) string {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("abstract names are Linux's")
	}
	return "@" + filepath.Base(SocketDir(t))
}

// Exists reports whether there is a file.
func Exists(path string) bool {
	_, err := os.Lstat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

// Echo sends a message from dealer to router and back.
func Echo[M ~[][]byte](t testing.TB, ctx context.Context, dealer, router interface {
	Send(context.Context, ...[]byte) error
	Recv(context.Context) (M, error)
}) {
	t.Helper()
	testenv.Must(t, dealer.Send(ctx, []byte("there"), make([]byte, 1<<20)))
	m, err := router.Recv(ctx)
	testenv.Must(t, err)
	testenv.Must(t, router.Send(ctx, m[0], []byte("and back"), m[2]))
	m, err = dealer.Recv(ctx)
	testenv.Must(t, err)
	if string(m[0]) != "and back" || len(m[1]) != 1<<20 {
		t.Fatalf("%q", m[0])
	}
}

// Plug is more than the kernel's buffers of a connection hold: a writer that
// has taken it, for a peer that does not read, is stuck in it, so that from
// then on queues can be counted exactly.
var Plug = make([]byte, 32<<20)
