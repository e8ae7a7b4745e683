package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"
	"strings"
	"time"
	"unicode/utf8"

	"clustermap/chp"
	"clustermap/internal/command"

	"github.com/spf13/cobra"
)

// lineReader reads lines.
type lineReader struct {
	in     *bufio.Reader
	limit  int    // maximum size of a line in bytes
	advice string // what to do about a longer one
	number int    // number of the current line, from 1
	long   []byte
}

// pairReader reads the JSON lines of a dump.
type pairReader struct {
	lineReader
	skipped int // number of lines with an expired time to live
	outside outside
}

func newPairReader(in io.Reader, limit int) *pairReader {
	return &pairReader{lineReader: lineReader{in: bufio.NewReaderSize(in, 64<<10), limit: limit, advice: "; use --max-line to allow more"}}
}

// pairFields are the fields of a line, for encoding/json, that say what a key is set to.
// Pointers distinguish empty fields from missing ones.
type pairFields struct {
	Key         *string `json:"key"`
	KeyBase64   *[]byte `json:"key_base64"`
	Value       *string `json:"value"`
	ValueBase64 *[]byte `json:"value_base64"`

	Properties       jsonProperties `json:"properties"`
	PropertiesBase64 []byte         `json:"properties_base64"`

	TTL *float64 `json:"ttl"`
}

// dumpLine is a line of a dump.
type dumpLine struct {
	pairFields

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
		line, err := p.filled()
		if err != nil {
			return chp.Entry{}, err
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

// filled returns the next line that is not blank, as line does.
func (p *lineReader) filled() ([]byte, error) {
	for {
		p.number++
		line, err := p.line()
		if line = bytes.TrimSpace(line); err != nil || len(line) > 0 {
			return line, err
		}
	}
}

// line returns the next line without its newline. It is valid until the next call. Memory
// is allocated only for bytes that have been read, up to the limit.
func (p *lineReader) line() ([]byte, error) {
	p.long = p.long[:0]
	for {
		part, err := p.in.ReadSlice('\n')
		ended := err == nil
		if ended {
			part = part[:len(part)-1]
		}
		switch {
		case len(p.long)+len(part) > p.limit:
			return nil, fmt.Errorf("longer than %d bytes%s", p.limit, p.advice)
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

// parsePair parses a line of a dump. An expired time to live becomes -1.
func parsePair(line []byte) (e chp.Entry, err error) {
	var l dumpLine
	if err := decodeLine(line, "a dump", &l); err != nil {
		return e, err
	}
	return l.entry()
}

// decodeLine decodes a line of JSON. The error says what is wrong with it, in words of what
// the lines are.
func decodeLine(line []byte, what string, into any) error {
	// encoding/json silently replaces bytes that are not UTF-8.
	if !utf8.Valid(line) {
		return errors.New("not UTF-8; use key_base64 or value_base64 for other bytes")
	}
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) {
			err = errors.New("the JSON object is cut off")
		}
		if errors.Is(err, errProperties) {
			return errProperties
		}
		if kind := (*json.UnmarshalTypeError)(nil); errors.As(err, &kind) {
			name := kind.Field[strings.LastIndexByte(kind.Field, '.')+1:]
			switch {
			case name == "":
				err = errors.New("not a JSON object")
			case kind.Type.Kind() == reflect.Float64:
				return fmt.Errorf("%s must be a number", name)
			case kind.Type.Kind() == reflect.Bool:
				return fmt.Errorf("%s must be true or false", name)
			default:
				return fmt.Errorf("%s must be a string", name)
			}
		}
		return fmt.Errorf("not a line of %s: %w", what, err)
	}
	if d.InputOffset() != int64(len(line)) {
		return fmt.Errorf("not a line of %s: text after the JSON object", what)
	}
	return nil
}

// entry returns what the fields say. An expired time to live becomes -1.
func (l *pairFields) entry() (e chp.Entry, err error) {
	if e.Key, err = textOf("key", l.Key, l.KeyBase64); err != nil {
		return e, err
	}
	if e.Value, err = textOf("value", l.Value, l.ValueBase64); err != nil {
		return e, err
	}
	if len(l.Properties) > 0 && len(l.PropertiesBase64) > 0 {
		return e, errors.New("needs either properties or properties_base64")
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

// textOf returns the bytes of a field that is text or in base64.
func textOf(name string, text *string, inBase64 *[]byte) ([]byte, error) {
	switch {
	case (text == nil) == (inBase64 == nil):
		return nil, fmt.Errorf("needs either %s or %s_base64", name, name)
	case text != nil:
		return []byte(*text), nil
	}
	return *inBase64, nil
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
