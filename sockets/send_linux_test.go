//go:build !portable

package sockets

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// brokenPipe names, to a process that this test starts, the write to make.
const brokenPipe = "CLUSTERMAP_TEST_BROKEN_PIPE"

// TestS17_NoSignal: no write to a peer that has gone raises SIGPIPE. Go's runtime
// ignores that in a program in Go; so each write is made in a process where the
// signal does what it does in a program in C that never asked for another thing.
func TestS17_NoSignal(t *testing.T) {
	writes := map[string]func(nc *net.UnixConn) error{
		"bare": func(nc *net.UnixConn) error { // it must end the process, or this test shows nothing
			raw, err := nc.SyscallConn()
			must(t, err)
			must(t, raw.Control(func(fd uintptr) { _, err = unix.Write(int(fd), []byte("x")) }))
			return err
		},
		"one piece": func(nc *net.UnixConn) error {
			var s stream
			must(t, s.init(nc))
			_, err := s.send([][]byte{[]byte("x")})
			return err
		},
		"pieces": func(nc *net.UnixConn) error {
			var s stream
			must(t, s.init(nc))
			_, err := s.send([][]byte{[]byte("x"), []byte("y")})
			return err
		},
		"direct": func(nc *net.UnixConn) error {
			var s stream
			must(t, s.init(nc))
			if newAttempt(&s).write([]byte("x")) != 0 {
				return nil
			}
			return unix.EPIPE // it does not tell
		},
		"handshake": func(nc *net.UnixConn) error {
			dealer := open(t, NewDealer, Options{})
			c, err := newConn(nc)
			must(t, err)
			_, err = dealer.handshake(c)
			return err
		},
		"proxy": func(nc *net.UnixConn) error {
			dealer := open(t, NewDealer, Options{SOCKSProxy: "127.0.0.1:1"})
			return dealer.askProxy(context.Background(), nc, endpoint{host: "127.0.0.1", port: 1})
		},
	}
	if write := writes[os.Getenv(brokenPipe)]; write != nil {
		nc, peer := unixPair(t)
		must(t, peer.Close())
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
	for name := range writes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestS17_NoSignal$")
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
	must(t, err)
	var ends [2]*net.UnixConn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "pair")
		nc, err := net.FileConn(f)
		must(t, err)
		f.Close()
		ends[i] = nc.(*net.UnixConn)
		t.Cleanup(func() { ends[i].Close() })
	}
	return ends[0], ends[1]
}
