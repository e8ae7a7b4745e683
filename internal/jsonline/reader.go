package jsonline

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
)

// A Reader reads lines.
type Reader struct {
	In     *bufio.Reader
	Limit  int    // maximum size of a line in bytes
	Advice string // what to do about a longer one
	Number int    // number of the current line, from 1
	long   []byte
}

// Filled returns the next line that is not blank, as Line does.
func (r *Reader) Filled() ([]byte, error) {
	for {
		r.Number++
		line, err := r.Line()
		if line = bytes.TrimSpace(line); err != nil || len(line) > 0 {
			return line, err
		}
	}
}

// Line returns the next line without its newline. It is valid until the next call. Memory
// is allocated only for bytes that have been read, up to the limit.
func (r *Reader) Line() ([]byte, error) {
	r.long = r.long[:0]
	for {
		part, err := r.In.ReadSlice('\n')
		ended := err == nil
		if ended {
			part = part[:len(part)-1]
		}
		switch {
		case len(r.long)+len(part) > r.Limit:
			return nil, fmt.Errorf("longer than %d bytes%s", r.Limit, r.Advice)
		case ended && len(r.long) == 0:
			return part, nil // the whole line
		}
		r.long = append(r.long, part...)
		switch {
		case ended, errors.Is(err, io.EOF) && len(r.long) > 0:
			return r.long, nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, err
		}
	}
}
