package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"time"
	"unicode/utf8"

	"clustermap/chp"
	"clustermap/internal/command"

	"github.com/spf13/cobra"
)

// pairReader reads the JSON lines of a dump.
type pairReader struct {
	in     *bufio.Reader
	limit  int // maximum size of a line in bytes
	number int // number of the current line, from 1
	long   []byte

	skipped int // number of lines with an expired time to live
	outside outside
}

func newPairReader(in io.Reader, limit int) *pairReader {
	return &pairReader{in: bufio.NewReaderSize(in, 64<<10), limit: limit}
}

// dumpLine is a line for encoding/json. Pointers distinguish empty fields from missing
// ones.
type dumpLine struct {
	Key         *string `json:"key"`
	KeyBase64   *[]byte `json:"key_base64"`
	Value       *string `json:"value"`
	ValueBase64 *[]byte `json:"value_base64"`

	Properties       jsonProperties `json:"properties"`
	PropertiesBase64 []byte         `json:"properties_base64"`

	TTL *float64 `json:"ttl"`

	// Of the lines of --diverged, for the user.
	Seq       any `json:"seq"`
	Term      any `json:"term"`
	After     any `json:"after"`
	Discarded any `json:"discarded"`
}

// next returns the entry of the next line. It skips blank lines, and lines with an
// expired time to live, which it counts. The value is valid until the next call. At the
// end of the input the error is io.EOF; any other error concerns line p.number.
func (p *pairReader) next() (chp.Entry, error) {
	for {
		p.number++
		line, err := p.line()
		if err != nil {
			return chp.Entry{}, err
		}
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		e, err := parsePair(line)
		if err == nil && e.TTL < 0 {
			p.skipped++
			continue
		}
		if err == nil {
			p.outside.add(e.Key)
		}
		return e, err
	}
}

// report says on standard error how many keys were loaded, and what may surprise.
func (p *pairReader) report(cmd *cobra.Command, count int, where string) error {
	p.outside.warn(cmd.ErrOrStderr())
	skipped := ""
	if p.skipped > 0 {
		skipped = fmt.Sprintf("; skipped %d with an expired time to live", p.skipped)
	}
	return report(cmd, "loaded %s %s%s", command.Count(count, "key"), where, skipped)
}

// line returns the next line without its newline. It is valid until the next call. Memory
// is allocated only for bytes that have been read, up to the limit.
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
			return nil, fmt.Errorf("longer than %d bytes; use --max-line to allow more", p.limit)
		case ended && len(p.long) == 0:
			return part, nil // the whole line
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

// parsePair parses a line. An expired time to live becomes -1.
func parsePair(line []byte) (e chp.Entry, err error) {
	// encoding/json silently replaces bytes that are not UTF-8.
	if !utf8.Valid(line) {
		return e, errors.New("not UTF-8; use key_base64 or value_base64 for other bytes")
	}
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	var l dumpLine
	if err := d.Decode(&l); err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) {
			err = errors.New("the JSON object is cut off")
		}
		if errors.Is(err, errProperties) {
			return e, errProperties
		}
		if kind := (*json.UnmarshalTypeError)(nil); errors.As(err, &kind) {
			switch {
			case kind.Field == "":
				err = errors.New("not a JSON object")
			case kind.Field == "ttl":
				return e, errors.New("ttl must be a number")
			default:
				return e, fmt.Errorf("%s must be a string", kind.Field)
			}
		}
		return e, fmt.Errorf("not a line of a dump: %w", err)
	}
	if d.InputOffset() != int64(len(line)) {
		return e, errors.New("not a line of a dump: text after the JSON object")
	}
	switch {
	case (l.Key == nil) == (l.KeyBase64 == nil):
		return e, errors.New("needs either key or key_base64")
	case (l.Value == nil) == (l.ValueBase64 == nil):
		return e, errors.New("needs either value or value_base64")
	case len(l.Properties) > 0 && len(l.PropertiesBase64) > 0:
		return e, errors.New("needs either properties or properties_base64")
	case l.Key != nil:
		e.Key = []byte(*l.Key)
	default:
		e.Key = *l.KeyBase64
	}
	if l.Value != nil {
		e.Value = []byte(*l.Value)
	} else {
		e.Value = *l.ValueBase64
	}
	if len(e.Value) == 0 {
		return e, errors.New("the value is empty, which would delete the key")
	}
	if e.Properties = chp.Properties(l.Properties); len(e.Properties) == 0 {
		e.Properties = l.PropertiesBase64
	}
	if l.TTL != nil {
		if e.TTL, err = timeToLive(*l.TTL); err != nil {
			return e, err
		}
	}
	return e, nil
}

// timeToLive converts a number of seconds. It returns -1 if the number is not positive.
func timeToLive(seconds float64) (time.Duration, error) {
	const most = 10 * 365 * 24 * 3600 // maxTTL in seconds
	switch {
	case seconds <= 0:
		return -1, nil
	case seconds > most:
		return 0, fmt.Errorf("a ttl of %g seconds is over ten years", seconds)
	}
	return max(time.Duration(math.Round(seconds*1e9)), 1), nil
}
