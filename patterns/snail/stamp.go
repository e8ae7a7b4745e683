package snail

import (
	"strconv"
	"time"
)

// AppendStamp appends the stamp of t: milliseconds since 1970 in decimal. The stamp of
// an earlier time is 0.
func AppendStamp(dst []byte, t time.Time) []byte {
	return strconv.AppendInt(dst, max(t.UnixMilli(), 0), 10)
}

// ParseStamp returns the time of a stamp. ok is false unless the frame consists of 1 to
// 18 digits.
func ParseStamp(frame []byte) (t time.Time, ok bool) {
	n, ok := parseNumber(frame)
	return time.UnixMilli(int64(n)), ok
}

func parseNumber(frame []byte) (n uint64, ok bool) {
	if len(frame) == 0 || len(frame) > maxDigits {
		return 0, false
	}
	for _, c := range frame {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = 10*n + uint64(c-'0')
	}
	return n, true
}
