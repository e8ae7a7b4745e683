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

// brokenPipe names, to a process that NoSignal starts, the write to make.
const brokenPipe = "CLUSTERMAP_TEST_BROKEN_PIPE"

// NoSignal fails a test if one of the writes, to a connection whose peer has gone, raises
// SIGPIPE or does not return EPIPE. Go's runtime
// ignores that signal in a program in Go; so each write is made in a process where the
// signal does what it does in a program in C that never asked for another thing. The
// process runs the same test.
func NoSignal(t *testing.T, writes map[string]func(nc *net.UnixConn) error) {
	t.Helper()
	writes["bare"] = func(nc *net.UnixConn) error { // it must end the process, or the test shows nothing
		raw, err := nc.SyscallConn()
		Must(t, err)
		Must(t, raw.Control(func(fd uintptr) { _, err = unix.Write(int(fd), []byte("x")) }))
		return err
	}
	if write := writes[os.Getenv(brokenPipe)]; write != nil {
		nc, peer := unixPair(t)
		Must(t, peer.Close())
		// What a zeroed struct sigaction says: the default, with nothing masked.
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
