package main

import (
	"bufio"
	"fmt"
	"io"

	"clustermap/chp"
	"clustermap/internal/command"
	"clustermap/internal/jsonline"
	"clustermap/internal/kvjson"

	"github.com/spf13/cobra"
)

// pairReader reads the JSON lines of a dump.
type pairReader struct {
	jsonline.Reader
	skipped int // number of lines with an expired time to live
	outside outside
}

func newPairReader(in io.Reader, limit int) *pairReader {
	return &pairReader{Reader: jsonline.Reader{In: bufio.NewReaderSize(in, 64<<10), Limit: limit, Advice: "; use --max-line to allow more"}}
}

// dumpLine is a line of a dump.
type dumpLine struct {
	kvjson.Fields

	// Of the lines of --diverged, for the user.
	Seq       any `json:"seq"`
	Term      any `json:"term"`
	After     any `json:"after"`
	Discarded any `json:"discarded"`
}

// next returns the entry of the next line. It skips blank lines, and lines with an
// expired time to live, which it counts. The value is valid until the next call. At the
// end of the input the error is io.EOF; any other error concerns line p.Number.
func (p *pairReader) next() (chp.Entry, error) {
	for {
		line, err := p.Filled()
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

// parsePair parses a line of a dump. An expired time to live becomes -1.
func parsePair(line []byte) (e chp.Entry, err error) {
	var l dumpLine
	if err := jsonline.Decode(line, "a dump", &l); err != nil {
		return e, err
	}
	return l.Entry()
}
