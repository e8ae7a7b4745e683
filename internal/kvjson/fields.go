package kvjson

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"clustermap/chp"
	"clustermap/internal/jsonline"
	"clustermap/internal/kvmsg"
)

// AppendSequence appends "name":"sequence". Sequences are strings in all JSON, because they
// exceed 2^53: programs that read numbers as float64 would round them.
func AppendSequence(dst []byte, name string, sequence int64) []byte {
	dst = append(append(append(dst, '"'), name...), `":"`...)
	return append(strconv.AppendInt(dst, sequence, 10), '"')
}

// AppendTTL appends ,"ttl":seconds, rounded up to milliseconds, unless ttl is 0.
func AppendTTL(dst []byte, ttl time.Duration) []byte {
	if ttl <= 0 {
		return dst
	}
	return AppendSeconds(dst, "ttl", ttl)
}

// AppendSeconds appends ,"name":seconds, rounded up to milliseconds.
func AppendSeconds(dst []byte, name string, d time.Duration) []byte {
	ms := (d + time.Millisecond - 1) / time.Millisecond
	dst = append(append(append(dst, `,"`...), name...), `":`...)
	return strconv.AppendFloat(dst, float64(ms)/1000, 'f', -1, 64)
}

// AppendProperties appends ,"properties":{"name":"value",…} in the order of the
// properties that are the user's: a ttl has a field of its own, as a stamp has (see
// AppendStamp). It appends nothing if there are none. If a text is not UTF-8, or a name occurs
// twice, the properties are in properties_base64, as the lines of RFC 12.
func AppendProperties(dst []byte, props chp.Properties) []byte {
	var lines []byte
	var names [][]byte
	object := true
	for name, value := range props.User().All() {
		lines = append(append(append(append(lines, name...), '='), value...), '\n')
		object = object && utf8.Valid(name) && utf8.Valid(value) && len(names) < maxProperties &&
			!slices.ContainsFunc(names, func(n []byte) bool { return bytes.Equal(n, name) })
		if object {
			names = append(names, name)
		}
	}
	switch {
	case len(lines) == 0:
		return dst
	case !object:
		dst = append(dst, `,"properties_base64":"`...)
		return append(base64.StdEncoding.AppendEncode(dst, lines), '"')
	}
	dst = append(dst, `,"properties":`...)
	separator := byte('{')
	for name, value := range chp.Properties(lines).All() {
		dst = jsonline.AppendString(append(dst, separator), name)
		dst = jsonline.AppendString(append(dst, ':'), value)
		separator = ','
	}
	return append(dst, '}')
}

// AppendStamp appends ,"lease":"…","time":"…","by":"…": the lease to which a key is attached,
// when the server accepted the update, and who has sent it. It leaves out what there is none of,
// or the server does not keep.
func AppendStamp(dst []byte, props chp.Properties) []byte {
	if lease, ok := props.Get(kvmsg.PropertyLease); ok {
		dst = jsonline.AppendField(append(dst, ','), "lease", lease)
	}
	at, by, ok := props.Stamped()
	if !ok {
		return dst
	}
	dst = append(at.UTC().AppendFormat(append(dst, `,"time":"`...), time.RFC3339Nano), '"')
	if by != "" {
		dst = jsonline.AppendField(append(dst, ','), "by", []byte(by))
	}
	return dst
}

// Properties are the properties in a line of JSON. They keep their order.
type Properties chp.Properties

// errProperties is the error of properties that are not as AppendProperties writes them.
var errProperties error = &jsonline.FieldError{Reason: "properties must be an object of strings"}

// UnmarshalJSON decodes an object of strings.
func (p *Properties) UnmarshalJSON(text []byte) error {
	d := json.NewDecoder(bytes.NewReader(text))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return errProperties
	}
	for d.More() {
		name, _ := d.Token()
		value, err := d.Token()
		text, ok := value.(string)
		if err != nil || !ok {
			return errProperties
		}
		line := name.(string) + "=" + text
		if name == "" || strings.Contains(name.(string), "=") || strings.Contains(line, "\n") {
			return errProperties
		}
		*p = append(append(*p, line...), '\n')
	}
	return nil
}
