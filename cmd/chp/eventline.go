package main

import (
	"strconv"

	"clustermap/chp"
	"clustermap/internal/command"
	"clustermap/internal/kvjson"
)

// appendEventText appends an event of watch as a line of text: operation, sequence, key
// and value, separated by spaces.
func appendEventText(dst []byte, e chp.Event) []byte {
	dst = append(dst, kvjson.OpName(e.Op)...)
	dst = append(dst, ' ')
	dst = strconv.AppendInt(dst, e.Sequence, 10)
	if kvjson.HasKey(e.Op) {
		dst = append(dst, ' ')
		dst = command.AppendPlain(dst, e.Key, false)
	}
	if e.Op == chp.OpSet {
		dst = append(dst, ' ')
		dst = command.AppendPlain(dst, e.Value, true)
	}
	return append(dst, '\n')
}
