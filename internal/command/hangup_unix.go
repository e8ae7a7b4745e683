//go:build unix

package command

import "golang.org/x/sys/unix"

// waitHangup waits until the other end of the pipe or socket fd is closed. It returns
// false if that cannot be observed.
func waitHangup(fd int) bool {
	// Without requested events, poll waits for the errors that it always reports.
	fds := []unix.PollFd{{Fd: int32(fd)}}
	for {
		_, err := unix.Poll(fds, -1)
		if err != unix.EINTR {
			return err == nil && fds[0].Revents&(unix.POLLERR|unix.POLLHUP) != 0
		}
	}
}
