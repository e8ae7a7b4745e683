package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"
)

// pairReader reads the JSON lines of a dump.
type pairReader struct {
	in     *bufio.Reader
	limit  int // octets of a line
	number int // of the line that next returned, counted from 1
	long   []byte
}

func newPairReader(in io.Reader, limit int) *pairReader {
	return &pairReader{in: bufio.NewReaderSize(in, 64<<10), limit: limit}
}

// dumpLine is a line as encoding/json sees it. Pointers tell a field that is
// empty from one that is not there.
type dumpLine struct {
	Key         *string `json:"key"`
	KeyBase64   *[]byte `json:"key_base64"`
	Value       *string `json:"value"`
	ValueBase64 *[]byte `json:"value_base64"`
}

// next returns the pair of the next line that is not blank. The value is lent
// until the next call. At the end of the input the error is io.EOF; any other
// error is about line p.number.
func (p *pairReader) next() (key string, value []byte, err error) {
	for {
		p.number++
		line, err := p.line()
		if err != nil {
			return "", nil, err
		}
		if line = bytes.TrimSpace(line); len(line) > 0 {
			return parsePair(line)
		}
	}
}

// line returns the next line without its end, lent until the next call. The
// memory it takes grows with what has arrived, up to the limit.
func (p *pairReader) line() ([]byte, error) {
	p.long = p.long[:0]
	for {
		part, err := p.in.ReadSlice('\n')
		ended := err == nil
		if ended {
			part = part[:len(part)-1]
		}
		switch {
		case len(p.long)+len(part) > p.limit:
			return nil, fmt.Errorf("longer than %d octets; allow more with --max-line", p.limit)
		case ended && len(p.long) == 0:
			return part, nil // nothing to put together
		}
		p.long = append(p.long, part...)
		switch {
		case ended, errors.Is(err, io.EOF) && len(p.long) > 0:
			return p.long, nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, err
		}
	}
}

// parsePair takes a line apart.
func parsePair(line []byte) (key string, value []byte, err error) {
	// encoding/json would replace octets that are not UTF-8 without a word.
	if !utf8.Valid(line) {
		return "", nil, errors.New("not UTF-8; other octets belong in key_base64 or value_base64")
	}
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	var l dumpLine
	if err := d.Decode(&l); err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) {
			err = errors.New("the JSON object is cut off")
		}
		return "", nil, fmt.Errorf("not a line of a dump: %w", err)
	}
	if d.InputOffset() != int64(len(line)) {
		return "", nil, errors.New("not a line of a dump: more follows the JSON object")
	}
	switch {
	case (l.Key == nil) == (l.KeyBase64 == nil):
		return "", nil, errors.New("needs either key or key_base64")
	case (l.Value == nil) == (l.ValueBase64 == nil):
		return "", nil, errors.New("needs either value or value_base64")
	case l.Key != nil:
		key = *l.Key
	default:
		key = string(*l.KeyBase64)
	}
	if l.Value != nil {
		value = []byte(*l.Value)
	} else {
		value = *l.ValueBase64
	}
	if len(value) == 0 {
		return "", nil, errors.New("the value is empty, which would delete the key")
	}
	return key, value, nil
}
