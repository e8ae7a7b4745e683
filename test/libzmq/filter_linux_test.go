package libzmq

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"clustermap/sockets"
)

// credentials returns what the system knows of the process at the other end.
func credentials(t *testing.T, c net.Conn) *syscall.Ucred {
	raw, err := c.(*net.UnixConn).SyscallConn()
	if err != nil {
		t.Error(err)
		return nil
	}
	var peer *syscall.Ucred
	var failed error
	err = raw.Control(func(fd uintptr) {
		peer, failed = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	})
	if err != nil || failed != nil {
		t.Error(err, failed)
		return nil
	}
	return peer
}

// groupsOf returns the groups of a process beside its first.
func groupsOf(t *testing.T, pid int32) []string {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Error(err)
	}
	_, groups, _ := strings.Cut(string(status), "\nGroups:")
	groups, _, _ = strings.Cut(groups, "\n")
	return strings.Fields(groups)
}

// TestLibzmq_filter_ipc: only processes of a certain user, of a certain group, which may
// be one of several, or with a certain number are let in.
func TestLibzmq_filter_ipc(t *testing.T) {
	t.Parallel()
	mine, err := os.Getgroups()
	must(t, err)
	user, group, process := os.Getuid(), os.Getgid(), os.Getpid()
	other, foreign := group, group+1
	for _, g := range mine {
		if g != group {
			other = g // there may be none
		}
		foreign = max(foreign, g+1)
	}
	type peer = *syscall.Ucred
	hasGroup := func(p peer, g int) bool {
		return int(p.Gid) == g || slices.Contains(groupsOf(t, p.Pid), fmt.Sprint(g))
	}
	for name, c := range map[string]struct {
		admits func(peer) bool
		works  bool
	}{
		"no filter":         {nil, true},
		"this user":         {func(p peer) bool { return int(p.Uid) == user }, true},
		"another user":      {func(p peer) bool { return int(p.Uid) == user+1 }, false},
		"this group":        {func(p peer) bool { return hasGroup(p, group) }, true},
		"one of the groups": {func(p peer) bool { return hasGroup(p, other) }, true},
		"a group of others": {func(p peer) bool { return hasGroup(p, foreign) }, false},
		"this process":      {func(p peer) bool { return int(p.Pid) == process }, true},
		"another process":   {func(p peer) bool { return int(p.Pid) == process+1 }, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var o sockets.Options
			if c.admits != nil {
				o = filter(func(nc net.Conn) bool {
					p := credentials(t, nc)
					return p != nil && c.admits(p)
				})
			}
			endpoint := "ipc://" + filepath.Join(t.TempDir(), "s")
			checkFilter(t, open(t, sockets.NewPair, o), endpoint, sockets.Options{ReconnectInterval: sockets.ReconnectNever}, c.works)
		})
	}
}
