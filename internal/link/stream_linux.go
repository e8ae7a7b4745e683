//go:build linux && !portable

package link

import (
	"io"
	"net"
	"os"
	"runtime"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// platformStream reads and writes the descriptor itself, inside the callbacks
// of the runtime's poller.
//
// What it gains over net.Conn: while a connection waits it holds no buffer.
// That needs a read that fails with EAGAIN before each wait. To wait right
// after a read that did not fill its buffer, and save that one, would be
// wrong: the poller is edge triggered, and tells of an end of file that came
// between the bytes and the read only once, together with the bytes. Its
// edge is used up by then; the wait would never end.
type platformStream struct {
	raw   syscall.RawConn // nil for a connection without a descriptor
	conn  *connStream     // of such a connection
	read  Receiving       // the reader's
	write writeState
	grows bool  // the kernel's buffer may become larger than localSendBuffer
	sent  int64 // bytes, since the last look at that
}

// maxVectors is how many pieces go into one vectored write.
const maxVectors = 64

type writeState struct {
	step    func(fd uintptr) bool // made once, so that writing does not allocate
	bufs    [][]byte              // what is left to write
	written int64
	err     error
}

// vector is where a write of several pieces lists them.
type vector struct {
	header unix.Msghdr
	pieces [maxVectors]unix.Iovec
}

// vectors holds the vectors that are not in use. All connections share them, so that
// an idle connection does not keep a kilobyte for one.
var vectors = sync.Pool{New: func() any {
	v := new(vector)
	v.header.Iov = &v.pieces[0]
	return v
}}

// Init takes over a connection. If conn has a method SyscallConn, the stream reads and
// writes the descriptor itself, so the bytes on that must be those of the connection.
// Otherwise it calls Read and Write.
func (s *Stream) Init(conn net.Conn) error {
	s.Conn = conn
	sc, ok := conn.(syscall.Conn)
	if !ok {
		s.conn = new(connStream)
		return nil
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return err
	}
	s.raw = raw
	s.write.step = s.writeStep
	return nil
}

// Receive feeds src until the connection ends or src ends it, and returns why. It
// may be called again, always with the same source.
func (s *Stream) Receive(src Source) error {
	if s.raw == nil {
		return s.conn.receive(s.Conn, src)
	}
	if s.read.step == nil {
		s.read.Init(src, Spin{})
	}
	return s.ReceiveFor(&s.read)
}

// CanReceiveFor says that ReceiveFor works for this connection.
func (s *Stream) CanReceiveFor() bool { return s.raw != nil }

// Receiving feeds a source by Stream.ReceiveFor. It is kept where that happens often,
// because what the poller calls is allocated.
type Receiving struct {
	src   Source
	Poll  bool // end where there is nothing to read, with ErrNothing
	Spin  Spin
	Spun  bool // set when there was nothing to read, and it looked again
	ended error
	step  func(fd uintptr) bool
}

// Init is called once, before ReceiveFor.
func (r *Receiving) Init(src Source, spin Spin) {
	r.src, r.Spin = src, spin
	r.step = r.receive
}

// ReceiveFor is Receive for another source of the connection's than that of Receive,
// while that does not run.
func (s *Stream) ReceiveFor(r *Receiving) error {
	r.ended = nil
	err := s.raw.Read(r.step)
	if r.ended != nil {
		return r.ended
	}
	return err
}

// receive reads until there is nothing more, and then reports false; or until
// that is over, for the reason in ended.
func (r *Receiving) receive(fd uintptr) bool {
	for {
		p := r.src.Space()
		n, err := unix.Read(int(fd), p)
		switch {
		case err == unix.EAGAIN && r.Poll:
			r.ended = ErrNothing
			return true
		case err == unix.EAGAIN && r.Spin.again():
			r.Spun = true
			continue
		case err == unix.EAGAIN:
			r.src.Idle()
			return false
		case err == unix.EINTR:
			continue
		case err != nil:
			r.ended = os.NewSyscallError("read", err)
			return true
		case n == 0:
			r.ended = io.EOF
			return true
		}
		r.Spin.hit()
		if r.ended = r.src.Received(n); r.ended != nil {
			return true
		}
	}
}

// Attempt writes what the kernel takes at once.
type Attempt struct {
	raw   syscall.RawConn
	bytes []byte
	n     int
	step  func(fd uintptr) bool
}

// NewAttempt returns nil where that cannot be done.
func NewAttempt(s *Stream) *Attempt {
	if s.raw == nil {
		return nil
	}
	a := &Attempt{raw: s.raw}
	a.step = a.once
	return a
}

// Write returns how many of the bytes were written: none where there is no room
// and also where the connection has failed, which is for others to find.
func (a *Attempt) Write(bytes []byte) int {
	a.bytes, a.n = bytes, 0
	if a.raw.Write(a.step) != nil {
		return 0
	}
	a.bytes = nil
	return a.n
}

func (a *Attempt) once(fd uintptr) bool {
	if n, errno := sendBytes(fd, a.bytes); errno == 0 {
		a.n = n
	}
	return true
}

// Send writes bufs wholly and returns how many bytes were written. It may
// change the slice of slices.
func (s *Stream) Send(bufs [][]byte) (int64, error) {
	if s.raw == nil {
		return s.conn.send(s, bufs)
	}
	w := &s.write
	w.bufs, w.written, w.err = bufs, 0, nil
	for len(w.bufs) > 0 && w.err == nil {
		if err := s.raw.Write(w.step); err != nil {
			w.err = err
		}
	}
	w.bufs = nil
	if s.grows {
		if s.sent += w.written; s.sent >= growthLook {
			s.sent = 0
			s.boundGrowth()
		}
	}
	return w.written, w.err
}

// Unconfirmed returns how many bytes, the end of the stream among them, were
// sent but not confirmed by the peer's system; 0 where that cannot be told.
func (s *Stream) Unconfirmed() (n int) {
	if s.raw == nil {
		return 0
	}
	_ = s.raw.Control(func(fd uintptr) { // it fails on a closed connection
		n, _ = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ)
	})
	return n
}

// writeStep writes until everything is written or the kernel's buffer is full;
// in the latter case it reports false, and is called again when there is room.
func (s *Stream) writeStep(fd uintptr) bool {
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
			w.err = os.NewSyscallError("sendmsg", errno)
			return true
		}
		w.written += int64(n)
		s.Moved.Add(int64(n))
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
	for len(w.bufs) > 0 && len(w.bufs[0]) == 0 {
		w.bufs = w.bufs[1:]
	}
	switch len(w.bufs) {
	case 0:
		return 0, 0
	case 1:
		return w.writeOne(fd)
	}
	v := vectors.Get().(*vector)
	defer vectors.Put(v)
	list := &v.pieces
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
		list[count].Base = &b[0]
		list[count].SetLen(len(b))
		total += len(b)
		count++
	}
	v.header.SetIovlen(count)
	n, errno := sendVector(fd, v)
	runtime.KeepAlive(w.bufs)
	clear(list[:count])
	return n, errno
}

// writeOne writes the only piece.
func (w *writeState) writeOne(fd uintptr) (int, syscall.Errno) {
	b := w.bufs[0]
	n, errno := sendBytes(fd, b[:min(len(b), maxWrite)])
	runtime.KeepAlive(b)
	return n, errno
}
