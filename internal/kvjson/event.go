package kvjson

import (
	"clustermap/chp"
	"clustermap/internal/jsonline"
)

// AppendEvent appends an event of a watch as a JSON line.
func AppendEvent(dst []byte, e chp.Event) []byte {
	dst = append(dst, `{"op":"`...)
	dst = append(dst, OpName(e.Op)...)
	dst = append(dst, '"')
	if e.Cause != 0 {
		dst = append(dst, `,"cause":"`...)
		dst = append(dst, e.Cause.String()...)
		dst = append(dst, '"')
	}
	dst = AppendTTL(dst, e.TTL)
	if HasKey(e.Op) && e.Cause != chp.CauseExpired { // the cause is such a property
		dst = AppendProperties(dst, e.Properties)
	}
	dst = AppendStamp(dst, e.Properties)
	dst = append(dst, ',')
	if HasKey(e.Op) {
		dst = jsonline.AppendField(dst, "key", e.Key)
		dst = append(dst, ',')
	}
	if e.Op == chp.OpSet {
		dst = jsonline.AppendField(dst, "value", e.Value)
		dst = append(dst, ',')
	}
	if e.Transaction != 0 {
		dst = append(AppendSequence(dst, "transaction", e.Transaction), ',')
	}
	dst = AppendSequence(dst, "seq", e.Sequence)
	return append(dst, '}', '\n')
}

// HasKey reports whether an event with an operation is of a key.
func HasKey(op chp.Op) bool { return op != chp.OpSynced && op != chp.OpBookmark }

// OpName returns the name of an operation in JSON, and as an event of chp watch.
func OpName(op chp.Op) string {
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
