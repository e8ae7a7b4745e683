package kvjson

import (
	"time"

	"clustermap/chp"
	"clustermap/internal/jsonline"
	"clustermap/internal/kvmsg"
)

// AppendVersion appends a version of a key as a JSON line.
func AppendVersion(dst []byte, key string, v chp.Version) []byte {
	dst = jsonline.AppendField(append(dst, '{'), "key", []byte(key))
	dst = AppendSequence(append(dst, ','), "seq", v.Sequence)
	dst = append(append(append(dst, `,"cause":"`...), v.Cause.String()...), '"')
	if !v.Time.IsZero() {
		dst = append(v.Time.UTC().AppendFormat(append(dst, `,"time":"`...), time.RFC3339Nano), '"')
	}
	if v.By != "" {
		dst = jsonline.AppendField(append(dst, ','), "by", []byte(v.By))
	}
	if v.Op == chp.OpSet {
		dst = jsonline.AppendField(append(dst, ','), "value", v.Value)
	}
	if v.Cause != chp.CauseExpired { // the cause is such a property
		dst = AppendProperties(dst, v.Properties)
	}
	return append(AppendTTL(dst, kvmsg.TTLOf(v.Properties)), '}', '\n')
}
