package espresso

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"time"

	"clustermap/zmtp"
)

// A file begins with a header of 16 bytes: the magic, the version, and the socket types
// of the frontend and the backend. Records follow. All numbers are big-endian.
const (
	fileMagic   = "ESPRESSO"
	fileVersion = 1
	fileHead    = 16

	// A record has a header, which is the size of its body and the body's CRC-32C,
	// and the body: its kind, a time, and the message in wire form (RFC 37) or two
	// numbers.
	recordHead = 8
	bodyHead   = 9
	lostBody   = bodyHead + 16

	whatFrontend = byte(DirectionFromFrontend)
	whatBackend  = byte(DirectionFromBackend)
	whatLost     = 3
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// appendHead appends the header of a record, without checksum, and the kind and time.
func appendHead(dst []byte, what byte, time int64, content int) []byte {
	dst = binary.BigEndian.AppendUint32(dst, uint32(bodyHead+content))
	dst = append(dst, 0, 0, 0, 0, what)
	return binary.BigEndian.AppendUint64(dst, uint64(time))
}

func appendLostRecord(dst []byte, time int64, messages, bytes uint64) []byte {
	dst = appendHead(dst, whatLost, time, 16)
	dst = binary.BigEndian.AppendUint64(dst, messages)
	return binary.BigEndian.AppendUint64(dst, bytes)
}

// nextRecord returns the body of the first record and the other records. All records
// must be complete.
func nextRecord(records []byte) (body, rest []byte) {
	end := recordHead + int(binary.BigEndian.Uint32(records))
	return records[recordHead:end], records[end:]
}

// seal sets the checksums of records.
func seal(records []byte) {
	for len(records) > 0 {
		body, rest := nextRecord(records)
		binary.BigEndian.PutUint32(records[4:], crc32.Checksum(body, castagnoli))
		records = rest
	}
}

// decode decodes the body of a record into e, whose Frames it reuses.
func (s Ends) decode(body []byte, e *Event) {
	*e = Event{Time: time.Unix(0, int64(binary.BigEndian.Uint64(body[1:]))), Frames: e.Frames[:0]}
	content := body[bodyHead:]
	if body[0] == whatLost {
		e.Op, e.Lost, e.LostBytes = OpLost, binary.BigEndian.Uint64(content), binary.BigEndian.Uint64(content[8:])
		return
	}
	e.From = Direction(body[0])
	e.Frames = zmtp.WireMessage(content).AppendFrames(e.Frames)
	s.interpret(e)
}

// checkBody returns the fault of the body of a record, or "".
func checkBody(body []byte) string {
	switch {
	case len(body) < bodyHead:
		return fmt.Sprintf("a record of %d bytes", len(body))
	case body[0] == whatLost:
		if len(body) != lostBody {
			return fmt.Sprintf("a record of lost messages of %d bytes", len(body))
		}
	case body[0] != whatFrontend && body[0] != whatBackend:
		return fmt.Sprintf("a record of kind %d", body[0])
	case !isMessage(body[bodyHead:]):
		return "an invalid message"
	}
	return ""
}

// isMessage reports whether b is exactly one message in wire form.
func isMessage(b []byte) bool {
	for {
		if len(b) < 2 {
			return false
		}
		flags, head, size := b[0], 2, uint64(b[1])
		if flags&zmtp.FlagLong != 0 {
			if len(b) < 9 {
				return false
			}
			head, size = 9, binary.BigEndian.Uint64(b[1:])
		}
		if flags&zmtp.FlagCommand != 0 || size > uint64(len(b)-head) {
			return false
		}
		b = b[head+int(size):]
		if flags&zmtp.FlagMore == 0 {
			return len(b) == 0
		}
	}
}

// Writer writes a recording: see [Observer.Record].
type Writer struct {
	to   io.Writer
	ends Ends

	messages, subscriptions uint64
}

// NewWriter starts a recording of a tap with the given socket types. It writes the
// header of the file.
func NewWriter(to io.Writer, ends Ends) (*Writer, error) {
	head := append([]byte(fileMagic), 0, fileVersion, byte(ends.Frontend), byte(ends.Backend), 0, 0, 0, 0)
	if _, err := to.Write(head); err != nil {
		return nil, err
	}
	return &Writer{to: to, ends: ends}, nil
}

// write sets the checksums of records and writes them.
func (w *Writer) write(records []byte) error {
	seal(records)
	n, err := w.to.Write(records)
	w.count(records, n)
	return err
}

// count counts the records that are complete within the first size bytes.
func (w *Writer) count(records []byte, size int) {
	for len(records) > 0 {
		body, rest := nextRecord(records)
		if size -= len(records) - len(rest); size < 0 {
			return
		}
		records = rest
		if body[0] == whatLost {
			continue
		}
		first, _ := zmtp.WireMessage(body[bodyHead:]).Next()
		if w.ends.op(Direction(body[0]), first) == OpMessage {
			w.messages++
		} else {
			w.subscriptions++
		}
	}
}

// Written returns the number of messages written, and the number of subscriptions and
// unsubscriptions. Call it after [Observer.Record] has returned.
func (w *Writer) Written() (messages, subscriptions uint64) { return w.messages, w.subscriptions }

// ErrFormat is returned for a file that is not a recording, or one of another version.
var ErrFormat = errors.New("espresso: not a recording")

// TornError reports that a recording ends in the middle of a record, for example
// because its writer was killed. All records before it were read.
type TornError struct {
	Offset int64 // where the record begins, in bytes
}

func (e *TornError) Error() string {
	return fmt.Sprintf("espresso: the recording ends in the middle of a record, which begins at byte %d", e.Offset)
}

// CorruptError reports that a recording is damaged. All records before the damage were
// read.
type CorruptError struct {
	Offset int64 // where the record begins, in bytes
	Reason string
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("espresso: the recording is damaged at byte %d: %s", e.Offset, e.Reason)
}

// Reader reads a recording. It is for one goroutine at a time.
type Reader struct {
	from io.Reader
	ends Ends
	at   int64
	buf  []byte
	err  error
}

// NewReader reads the header of a recording. It returns ErrFormat for other files. It
// makes small reads, so from should be buffered.
func NewReader(from io.Reader) (*Reader, error) {
	var head [fileHead]byte
	switch _, err := io.ReadFull(from, head[:]); {
	case err == io.EOF, err == io.ErrUnexpectedEOF, err == nil && string(head[:len(fileMagic)]) != fileMagic:
		return nil, ErrFormat
	case err != nil:
		return nil, err
	}
	if version := binary.BigEndian.Uint16(head[8:]); version != fileVersion {
		return nil, fmt.Errorf("%w of version %d: it has version %d", ErrFormat, fileVersion, version)
	}
	return &Reader{from: from, ends: Ends{zmtp.SocketType(head[10]), zmtp.SocketType(head[11])}, at: fileHead}, nil
}

// Ends returns the socket types of the recorded tap.
func (r *Reader) Ends() Ends { return r.ends }

// Next reads the next event into e, whose memory it reuses. It returns io.EOF at the end,
// a *TornError if the last record is incomplete, a *CorruptError, or an error of the
// underlying reader.
func (r *Reader) Next(e *Event) error {
	if r.err == nil {
		r.err = r.next(e)
	}
	return r.err
}

func (r *Reader) next(e *Event) error {
	var head [recordHead]byte
	switch _, err := io.ReadFull(r.from, head[:]); err {
	case nil:
	case io.ErrUnexpectedEOF:
		return &TornError{r.at}
	default:
		return err
	}
	size := binary.BigEndian.Uint32(head[:])
	if size > math.MaxInt32 {
		return &CorruptError{r.at, fmt.Sprintf("a record of %d bytes", size)}
	}
	body, err := r.readBody(int(size))
	if err != nil {
		return err
	}
	if crc32.Checksum(body, castagnoli) != binary.BigEndian.Uint32(head[4:]) {
		return &CorruptError{r.at, "wrong checksum"}
	}
	if wrong := checkBody(body); wrong != "" {
		return &CorruptError{r.at, wrong}
	}
	r.at += recordHead + int64(size)
	r.ends.decode(body, e)
	return nil
}

// readBody reads a body. Its buffer grows with the bytes read, not to the announced size.
func (r *Reader) readBody(size int) ([]byte, error) {
	const first = 64 << 10
	r.buf = r.buf[:0]
	for len(r.buf) < size {
		have := len(r.buf)
		want := min(size, max(2*have, first, cap(r.buf)))
		if cap(r.buf) < want {
			r.buf = append(make([]byte, 0, want), r.buf...)
		}
		n, err := io.ReadFull(r.from, r.buf[have:want])
		r.buf = r.buf[:have+n]
		switch err {
		case nil:
		case io.EOF, io.ErrUnexpectedEOF:
			return nil, &TornError{r.at}
		default:
			return nil, err
		}
	}
	return r.buf, nil
}
