package main

import (
	"strconv"

	"clustermap/chp"
	"clustermap/internal/command"
)

// appendEventJSON appends an event of watch as a JSON line.
func appendEventJSON(dst []byte, e chp.Event) []byte {
	dst = append(dst, `{"op":"`...)
	dst = append(dst, opName(e.Op)...)
	dst = append(dst, '"')
	if e.Cause != 0 {
		dst = append(dst, `,"cause":"`...)
		dst = append(dst, e.Cause.String()...)
		dst = append(dst, '"')
	}
	dst = appendJSONTTL(dst, e.TTL)
	if hasKey(e.Op) && e.Cause != chp.CauseExpired { // the cause is such a property
		dst = appendJSONProperties(dst, e.Properties)
	}
	dst = appendJSONStamp(dst, e.Properties)
	dst = append(dst, ',')
	if hasKey(e.Op) {
		dst = command.AppendJSONField(dst, "key", e.Key)
		dst = append(dst, ',')
	}
	if e.Op == chp.OpSet {
		dst = command.AppendJSONField(dst, "value", e.Value)
		dst = append(dst, ',')
	}
	if e.Transaction != 0 {
		dst = append(appendJSONSequence(dst, "transaction", e.Transaction), ',')
	}
	dst = appendJSONSequence(dst, "seq", e.Sequence)
	return append(dst, '}', '\n')
}

// appendEventText appends an event of watch as a line of text: operation, sequence, key
// and value, separated by spaces.
func appendEventText(dst []byte, e chp.Event) []byte {
	dst = append(dst, opName(e.Op)...)
	dst = append(dst, ' ')
	dst = strconv.AppendInt(dst, e.Sequence, 10)
	if hasKey(e.Op) {
		dst = append(dst, ' ')
		dst = command.AppendPlain(dst, e.Key, false)
	}
	if e.Op == chp.OpSet {
		dst = append(dst, ' ')
		dst = command.AppendPlain(dst, e.Value, true)
	}
	return append(dst, '\n')
}

// hasKey reports whether an event with an operation is of a key.
func hasKey(op chp.Op) bool { return op != chp.OpSynced && op != chp.OpBookmark }

func opName(op chp.Op) string {
	switch op {
	case chp.OpSet:
		return "set"
	case chp.OpDelete:
		return "del"
	case chp.OpBookmark:
		return "bookmark"
	default:
		return "synced"
	}
}
