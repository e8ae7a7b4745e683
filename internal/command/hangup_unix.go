//go:build unix

package command

import "golang.org/x/sys/unix"

// waitHangup waits until the reader of the pipe or socket fd is gone. It returns
// false if that cannot be told.
func waitHangup(fd int) bool {
	// Without any event asked for, poll waits for the errors it always reports.
	fds := []unix.PollFd{{Fd: int32(fd)}}
	for {
		_, err := unix.Poll(fds, -1)
		if err != unix.EINTR {
			return err == nil && fds[0].Revents&(unix.POLLERR|unix.POLLHUP) != 0
		}
	}
}
