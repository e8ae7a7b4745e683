package main

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"strconv"

	"clustermap/internal/bench/bare"
)

// resp is a connection that speaks Redis's protocol, RESP 2 or 3, with buffers as large as
// those of the bare pipeline.
type resp struct {
	net.Conn
	in  *bufio.Reader
	out []byte
}

func newRESP(c net.Conn) *resp {
	return &resp{Conn: c, in: bufio.NewReaderSize(c, bare.BufferSize)}
}

// command appends a command to the buffer that push sends.
func (r *resp) command(words ...string) {
	r.begin(len(words))
	for _, word := range words {
		r.out = appendBulk(r.out, word)
	}
}

// begin appends the beginning of a command of the given number of words.
func (r *resp) begin(words int) {
	r.out = append(r.out, '*')
	r.out = strconv.AppendInt(r.out, int64(words), 10)
	r.out = append(r.out, "\r\n"...)
}

func appendBulk[T string | []byte](dst []byte, word T) []byte {
	dst = append(dst, '$')
	dst = strconv.AppendInt(dst, int64(len(word)), 10)
	dst = append(dst, "\r\n"...)
	return append(append(dst, word...), "\r\n"...)
}

// push sends the commands.
func (r *resp) push() error {
	_, err := r.Write(r.out)
	r.out = r.out[:0]
	return err
}

var errRESP = errors.New("not what Redis answers")

// line reads a line without its end. It is lent until the next read.
func (r *resp) line() ([]byte, error) {
	line, err := r.in.ReadSlice('\n')
	if err != nil {
		return nil, err
	}
	if len(line) < 3 || line[len(line)-2] != '\r' {
		return nil, errRESP
	}
	if line[0] == '-' {
		return nil, fmt.Errorf("redis: %s", line[1:len(line)-2])
	}
	return line[:len(line)-2], nil
}

// number reads a line of the kind, and the number in it.
func (r *resp) number(kind byte) (int, error) {
	line, err := r.line()
	if err != nil {
		return 0, err
	}
	if line[0] != kind || len(line) < 2 {
		return 0, fmt.Errorf("%w: %q", errRESP, line)
	}
	n := 0
	for _, digit := range line[1:] {
		if digit < '0' || digit > '9' || n > 1<<24 {
			return 0, fmt.Errorf("%w: %q", errRESP, line)
		}
		n = 10*n + int(digit-'0')
	}
	return n, nil
}

// count reads the beginning of an aggregate, which must be of the kind and have the given
// number of elements.
func (r *resp) count(kind byte, want int) error {
	n, err := r.number(kind)
	if err == nil && n != want {
		err = fmt.Errorf("%w: %d elements, want %d", errRESP, n, want)
	}
	return err
}

// bulk reads a string. It is lent until the next read.
func (r *resp) bulk() ([]byte, error) {
	n, err := r.number('$')
	if err != nil {
		return nil, err
	}
	b, err := r.in.Peek(n + 2)
	if err != nil {
		return nil, err
	}
	_, err = r.in.Discard(n + 2)
	return b[:n], err
}

// skip reads an answer of any kind and throws it away.
func (r *resp) skip() error {
	line, err := r.line()
	if err != nil {
		return err
	}
	kind := line[0]
	n, err := strconv.Atoi(string(line[1:]))
	if err != nil || n < 0 {
		return nil // an answer of only this line
	}
	switch kind {
	case '$':
		_, err := r.in.Discard(n + 2)
		return err
	case '%':
		n *= 2
	case '*', '>':
	default:
		return nil
	}
	for range n {
		if err := r.skip(); err != nil {
			return err
		}
	}
	return nil
}
