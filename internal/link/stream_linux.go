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
// Unlike with net.Conn, a waiting connection holds no buffer. This requires a
// read that fails with EAGAIN before each wait, even after a read that did not fill
// its buffer. The poller is edge-triggered: an end of file that arrives between the
// bytes and the read is reported together with the bytes, and never again, so a
// wait without that read might never end.
type platformStream struct {
	raw   syscall.RawConn // nil for a connection without a descriptor
	conn  *connStream     // for a connection without a descriptor
	read  Receiving       // of Receive
	write writeState
	grows bool  // the kernel's send buffer may become larger than localSendBuffer
	sent  int64 // bytes since the size of that buffer was checked
}

type writeState struct {
	step    func(fd uintptr) bool // created once, so that writing does not allocate
	bufs    [][]byte              // not written yet
	written int64
	err     error
}

// vector lists the pieces of a vectored write.
type vector struct {
	header unix.Msghdr
	pieces [maxVectors]unix.Iovec
}

// vectors holds unused vectors. All connections share them, because a vector takes a
// kilobyte.
var vectors = sync.Pool{New: func() any {
	v := new(vector)
	v.header.Iov = &v.pieces[0]
	return v
}}

// Init sets the connection. The stream reads and writes the descriptor of a
// *net.TCPConn or *net.UnixConn itself, and otherwise calls Read and Write.
func (s *Stream) Init(conn net.Conn) error {
	s.Conn = conn
	sc, ok := descriptor(conn)
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

// Receive reads into src until the connection ends or src returns an error, and
// returns the reason. It may be called again, always with the same source.
func (s *Stream) Receive(src Source) error {
	if s.raw == nil {
		return s.conn.receive(s.Conn, src)
	}
	if s.read.step == nil {
		s.read.Init(src, Spin{})
	}
	return s.ReceiveFor(&s.read)
}

// CanReceiveFor reports whether ReceiveFor can be used for this connection.
func (s *Stream) CanReceiveFor() bool { return s.raw != nil }

// Receiving is the state of Stream.ReceiveFor. Callers keep it, because Init
// allocates.
type Receiving struct {
	src   Source
	Poll  bool // return ErrNothing instead of waiting
	Spin  Spin
	Spun  bool // set when Spin has polled
	ended error
	step  func(fd uintptr) bool
}

// Init must be called once, before ReceiveFor.
func (r *Receiving) Init(src Source, spin Spin) {
	r.src, r.Spin = src, spin
	r.step = r.receive
}

// Streaming sets whether messages come many at a time; Spin does not poll then.
func (r *Receiving) Streaming(on bool) { r.Spin.stream = on }

// ReceiveFor is like Receive, but reads into the source of r. Only one of the two may
// run at a time.
func (s *Stream) ReceiveFor(r *Receiving) error {
	r.ended = nil
	err := s.raw.Read(r.step)
	if r.ended != nil {
		return r.ended
	}
	return err
}

// receive reads until there is nothing more to read, and then returns false, or until
// reading ends, and then returns true with the reason in ended.
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

// Attempt writes without waiting.
type Attempt struct {
	stream *Stream
	bytes  []byte
	n      int
	step   func(fd uintptr) bool
}

// NewAttempt returns an Attempt for s, or nil if s has no descriptor.
func NewAttempt(s *Stream) *Attempt {
	if s.raw == nil {
		return nil
	}
	a := &Attempt{stream: s}
	a.step = a.once
	return a
}

// Write returns the number of bytes written. It is 0 if the kernel's buffer is full
// or the connection has failed.
func (a *Attempt) Write(bytes []byte) int {
	a.bytes, a.n = bytes, 0
	if a.stream.raw.Write(a.step) != nil {
		return 0
	}
	a.bytes = nil
	a.stream.Moved.Add(int64(a.n))
	return a.n
}

func (a *Attempt) once(fd uintptr) bool {
	if n, errno := sendBytes(fd, a.bytes); errno == 0 {
		a.n = n
	}
	return true
}

// Send writes all of bufs and returns the number of bytes written. It may change the
// elements of bufs.
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

// look asks for the size of the kernel's queue of bytes to send.
type look struct {
	step func(fd uintptr) // created once, so that looking does not allocate
	n    int
}

var looks = sync.Pool{New: func() any {
	l := new(look)
	l.step = func(fd uintptr) { l.n, _ = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ) }
	return l
}}

// Unconfirmed returns the number of bytes sent, counting the end of the stream as
// one, that the peer's system has not acknowledged, or 0 if unknown.
func (s *Stream) Unconfirmed() int {
	if s.raw == nil {
		return 0
	}
	l := looks.Get().(*look)
	defer looks.Put(l)
	l.n = 0
	_ = s.raw.Control(l.step) // fails only on a closed connection
	return l.n
}

// writeStep writes until everything is written, or the kernel's buffer is full. In
// the latter case it returns false, and is called again when there is room.
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
		b := w.bufs[0]
		n, errno := sendBytes(fd, b[:min(len(b), maxWrite)])
		runtime.KeepAlive(b)
		return n, errno
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
		b = b[:min(len(b), maxWrite-total)]
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
