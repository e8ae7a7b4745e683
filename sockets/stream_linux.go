package sockets

import (
	"io"
	"net"
	"os"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// platformStream reads and writes the descriptor itself, inside the callbacks
// of the runtime's poller.
//
// What it gains over net.Conn: while a connection waits it holds no buffer,
// and after a read that did not fill its buffer it waits at once, without a
// second read only to be told EAGAIN. The latter is sound because all of a
// connection's reads happen inside one RawConn.Read call. The poller is edge
// triggered and its readiness is only forgotten when such a call begins:
// octets that arrive between the short read and the wait leave the descriptor
// marked ready, and the wait returns immediately.
type platformStream struct {
	raw   syscall.RawConn
	write writeState
}

// maxVectors is how many pieces go into one vectored write.
const maxVectors = 64

type writeState struct {
	step    func(fd uintptr) bool // made once, so that writing does not allocate
	bufs    [][]byte              // what is left to write
	written int64
	err     error
	vectors [maxVectors]unix.Iovec
}

func (s *stream) init(conn net.Conn) error {
	s.conn = conn
	sc, ok := conn.(syscall.Conn)
	if !ok {
		return os.ErrInvalid
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return err
	}
	s.raw = raw
	s.write.step = s.writeStep
	return nil
}

// receive feeds src until the connection ends, and returns why.
func (s *stream) receive(src source) error {
	var ended error
	err := s.raw.Read(func(fd uintptr) bool {
		for {
			p := src.space()
			n, err := unix.Read(int(fd), p)
			switch {
			case err == unix.EAGAIN:
				src.idle()
				return false
			case err == unix.EINTR:
				continue
			case err != nil:
				ended = os.NewSyscallError("read", err)
				return true
			case n == 0:
				ended = io.EOF
				return true
			}
			if ended = src.received(n); ended != nil {
				return true
			}
			if n < len(p) {
				src.idle()
				return false
			}
		}
	})
	if ended != nil {
		return ended
	}
	return err
}

// send writes bufs wholly and returns how many octets were written. It may
// change the slice of slices.
func (s *stream) send(bufs [][]byte) (int64, error) {
	w := &s.write
	w.bufs, w.written, w.err = bufs, 0, nil
	for len(w.bufs) > 0 && w.err == nil {
		if err := s.raw.Write(w.step); err != nil {
			w.err = err
		}
	}
	w.bufs = nil
	return w.written, w.err
}

// writeStep writes until everything is written or the kernel's buffer is full;
// in the latter case it reports false, and is called again when there is room.
func (s *stream) writeStep(fd uintptr) bool {
	w := &s.write
	for len(w.bufs) > 0 {
		n, errno := w.writev(fd)
		switch errno {
		case 0:
		case unix.EAGAIN:
			return false
		case unix.EINTR:
			continue
		default:
			w.err = os.NewSyscallError("writev", errno)
			return true
		}
		w.written += int64(n)
		for n > 0 && n >= len(w.bufs[0]) {
			n -= len(w.bufs[0])
			w.bufs = w.bufs[1:]
		}
		if n > 0 {
			w.bufs[0] = w.bufs[0][n:]
		}
	}
	return true
}

func (w *writeState) writev(fd uintptr) (int, syscall.Errno) {
	total, count := 0, 0
	for _, b := range w.bufs {
		if count == maxVectors || total >= maxWrite {
			break
		}
		if len(b) == 0 {
			continue
		}
		if len(b) > maxWrite-total {
			b = b[:maxWrite-total]
		}
		w.vectors[count].Base = &b[0]
		w.vectors[count].SetLen(len(b))
		total += len(b)
		count++
	}
	if count == 0 {
		w.bufs = nil
		return 0, 0
	}
	var n uintptr
	var errno syscall.Errno
	if count == 1 {
		n, _, errno = unix.Syscall(unix.SYS_WRITE, fd, uintptr(unsafe.Pointer(w.vectors[0].Base)), uintptr(w.vectors[0].Len))
	} else {
		n, _, errno = unix.Syscall(unix.SYS_WRITEV, fd, uintptr(unsafe.Pointer(&w.vectors[0])), uintptr(count))
	}
	runtime.KeepAlive(w.bufs)
	clear(w.vectors[:count])
	if errno != 0 {
		return 0, errno
	}
	return int(n), 0
}
