package testenv

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// brokenPipe is the environment variable that names the write for a process that
// NoSignal has started.
const brokenPipe = "CLUSTERMAP_TEST_BROKEN_PIPE"

// NoSignal fails a test if one of the writes, to a connection that the peer has closed,
// raises SIGPIPE or does not return EPIPE. Go programs ignore SIGPIPE on sockets, so
// each write runs in a process with the default action of C programs. The process runs
// the same test.
func NoSignal(t *testing.T, writes map[string]func(nc *net.UnixConn) error) {
	t.Helper()
	writes["bare"] = func(nc *net.UnixConn) error { // must end the process; otherwise the test proves nothing
		raw, err := nc.SyscallConn()
		Must(t, err)
		Must(t, raw.Control(func(fd uintptr) { _, err = unix.Write(int(fd), []byte("x")) }))
		return err
	}
	if write := writes[os.Getenv(brokenPipe)]; write != nil {
		nc, peer := unixPair(t)
		Must(t, peer.Close())
		// A zeroed struct sigaction selects the default action.
		var action [64]byte
		_, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(unix.SIGPIPE), uintptr(unsafe.Pointer(&action)), 0, 8, 0, 0)
		if errno != 0 {
			t.Fatal(errno)
		}
		if err := write(nc); !errors.Is(err, unix.EPIPE) {
			t.Fatalf("the write to a closed peer: %v", err)
		}
		return
	}
	test := t.Name()
	for name := range writes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+test+"$")
			cmd.Env = append(os.Environ(), brokenPipe+"="+name)
			out, err := cmd.CombinedOutput()
			status, _ := cmd.ProcessState.Sys().(syscall.WaitStatus)
			killed := status.Signaled() && status.Signal() == syscall.SIGPIPE
			if name == "bare" {
				if !killed {
					t.Errorf("a bare write leaves the process alive: %v\n%s", err, out)
				}
				return
			}
			if err != nil {
				t.Errorf("killed by SIGPIPE: %v; %v\n%s", killed, err, out)
			}
		})
	}
}

// unixPair returns both ends of a connection.
func unixPair(t *testing.T) (*net.UnixConn, *net.UnixConn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	Must(t, err)
	var ends [2]*net.UnixConn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "pair")
		nc, err := net.FileConn(f)
		Must(t, err)
		f.Close()
		ends[i] = nc.(*net.UnixConn)
		t.Cleanup(func() { ends[i].Close() })
	}
	return ends[0], ends[1]
}
