package sockets

import (
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// TestLibzmq_filter_ipc: only processes of a certain user and group are let in.
func TestLibzmq_filter_ipc(t *testing.T) {
	t.Parallel()
	checkFilter(t, func() string { return "ipc://" + filepath.Join(t.TempDir(), "s") }, func(c net.Conn) bool {
		raw, err := c.(*net.UnixConn).SyscallConn()
		if err != nil {
			t.Error(err)
			return false
		}
		var peer *syscall.Ucred
		var failed error
		err = raw.Control(func(fd uintptr) {
			peer, failed = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
		})
		if err != nil || failed != nil {
			t.Error(err, failed)
			return false
		}
		return int(peer.Uid) == os.Getuid() && int(peer.Gid) == os.Getgid()
	})
}
