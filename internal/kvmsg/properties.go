package kvmsg

import (
	"bytes"
	"iter"
	"strconv"
	"strings"
	"time"
)

// Properties are the fourth frame of a message: lines of the form name=value, each with
// a newline, split at the first equals sign, so a value may contain one (RFC 12,
// "properties"). If a name occurs twice, the first one counts.

// Properties is what chp.Properties documents.
type Properties []byte

// Get returns the value of the first property with a name.
func (p Properties) Get(name string) (value []byte, ok bool) { return Property(p, name) }

// All returns an iterator over the names and values, in their order. It leaves out lines
// that are not of the form name=value. The slices point into p.
func (p Properties) All() iter.Seq2[[]byte, []byte] {
	return func(yield func(name, value []byte) bool) {
		for line := range bytes.Lines(p) {
			name, value, ok := bytes.Cut(bytes.TrimSuffix(line, []byte("\n")), []byte("="))
			if ok && len(name) > 0 && !yield(name, value) {
				return
			}
		}
	}
}

// Property returns the value of the first property with a name.
func Property(props []byte, name string) (value []byte, ok bool) {
	start, end := propertyLine(props, name)
	if start == end {
		return nil, false
	}
	return bytes.TrimSuffix(props[start+len(name)+1:end], newline), true
}

var newline = []byte{'\n'}

// PropertyCause is the property with which a server says why it deleted a key, if no client
// has. In the deletion of a client it would be a forgery, and is removed.
const PropertyCause = "cause"

// Properties with names that begin with Reserved are the protocol's. Those of a stamp are
// what a server says of an update that it has accepted (ServerOptions.Stamp): from a client
// they would be forgeries, and are removed.
const (
	Reserved      = "x-"
	propertyStamp = Reserved + "time" // when it was accepted: nanoseconds of Unix time, in decimal
	propertyBy    = Reserved + "by"   // who sent it
)

// IsUser reports whether a property is the user's: not the time to live, which is shown as
// such, and not the protocol's.
func IsUser(name []byte) bool {
	return string(name) != "ttl" && !bytes.HasPrefix(name, []byte(Reserved))
}

// PropertyMore is the property of an update of a transaction, in decimal: how many updates of it
// follow. Those have the next sequences. The last one does not have it, and what is not of a
// transaction must not have it.
const PropertyMore = Reserved + "more"

// MoreOf returns the value of PropertyMore of a record with a tag, or 0.
func MoreOf(r Record, tag uint64) int {
	if tag&TagProperties == 0 {
		return 0
	}
	text, ok := Property(r.Props(), PropertyMore)
	if !ok || len(text) > len("1023") {
		return 0
	}
	n := 0
	for _, c := range text {
		if c < '0' || c > '9' {
			return 0
		}
		n = n*10 + int(c-'0')
	}
	return n
}

// User is what chp.Properties documents.
func (p Properties) User() Properties {
	if !bytes.Contains(p, []byte("ttl=")) && !bytes.Contains(p, []byte(Reserved)) {
		return p
	}
	return AppendUser(nil, p)
}

// AppendUser appends the lines of props with names for which IsUser is true. dst may be the
// start of props.
func AppendUser(dst, props []byte) []byte {
	for line := range bytes.Lines(props) {
		if name, _, _ := bytes.Cut(line, []byte("=")); IsUser(name) {
			dst = append(dst, line...)
		}
	}
	return dst
}

// Stamped is what chp.Properties documents.
func (p Properties) Stamped() (at time.Time, by string, ok bool) {
	text, ok := Property(p, propertyStamp)
	if !ok {
		return at, "", false
	}
	ns, err := strconv.ParseInt(string(text), 10, 64)
	if err != nil {
		return at, "", false
	}
	author, _ := Property(p, propertyBy)
	return time.Unix(0, ns), string(author), true
}

// AppendStamp appends the property lines of a stamp. It leaves out an author whose name a line
// cannot have, or that is empty.
func AppendStamp(dst []byte, at time.Time, by string) []byte {
	dst = strconv.AppendInt(append(dst, propertyStamp+"="...), at.UnixNano(), 10)
	dst = append(dst, '\n')
	if by != "" && len(by) <= maxAuthor && strings.IndexByte(by, '\n') < 0 {
		dst = append(append(append(dst, propertyBy+"="...), by...), '\n')
	}
	return dst
}

// StampGrowth bounds the bytes by which a stamp with an author makes an update longer: both lines,
// and a longer frame header.
func StampGrowth(by string) int {
	return len(propertyStamp+"=") + 20 + 1 + len(propertyBy+"=") + min(len(by), maxAuthor) + 1 + 7
}

// AppendWith appends r with more property lines behind its own.
func AppendWith(dst []byte, r Record, lines []byte) []byte {
	at := r.propsAt()
	start, value := FrameBounds(r, at)
	dst = append(dst, r[:at]...)
	dst = appendHeader(dst, value-start+len(lines), FlagMore)
	dst = append(append(dst, r[start:value]...), lines...)
	return append(dst, r[value:]...)
}

// forges reports whether a line of a client's properties says what only servers, or requests, may
// say.
func forges(line []byte, from Origin, deletion bool) bool {
	name, _, _ := bytes.Cut(line, []byte("="))
	switch string(name) {
	case PropertyCause:
		return deletion
	case PropertyMore, PropertyLease:
		return from != FromRequest
	case propertyStamp, propertyBy:
		return true
	}
	return false
}

// hasForgery reports whether a line of props is a forgery.
func hasForgery(props []byte, from Origin, deletion bool) bool {
	for line := range bytes.Lines(props) {
		if forges(line, from, deletion) {
			return true
		}
	}
	return false
}

// stripForgeries removes such lines from m, a message with the given parts, in place. It
// updates p.
func stripForgeries(m []byte, p *parts, from Origin) {
	value := m[p.value:p.end]
	props := m[p.props:p.props]
	for line := range bytes.Lines(m[p.props:p.propsEnd]) {
		if !forges(line, from, len(value) == 0) {
			props = append(props, line...)
		}
	}
	// The headers are not longer than before, so nothing is overwritten before it has moved.
	out := AppendFrame(m[:Record(m).propsAt()], props, FlagMore)
	p.props, p.propsEnd = len(out)-len(props), len(out)
	out = AppendFrame(out, value, 0)
	p.value, p.end = len(out)-len(value), len(out)
}

// AppendWithout appends props without the lines of a name. dst may be the start of
// props.
func AppendWithout(dst, props []byte, name string) []byte {
	for start, end := propertyLine(props, name); end > 0; start, end = propertyLine(props, name) {
		dst = append(dst, props[:start]...)
		props = props[end:]
	}
	return append(dst, props...)
}

// CheckProperties returns an error if props is malformed or has an invalid ttl.
func CheckProperties(props []byte) error {
	if len(props) > MaxProperties {
		return errPropertiesLarge
	}
	for len(props) > 0 {
		end := bytes.IndexByte(props, '\n')
		if end < 0 {
			return errPropertyLine
		}
		line := props[:end]
		equals := bytes.IndexByte(line, '=')
		if equals < 1 {
			return errPropertyLine
		}
		if string(line[:equals]) == "ttl" {
			if _, ok := ParseTTL(line[equals+1:]); !ok {
				return ErrTTL
			}
		}
		props = props[end+1:]
	}
	return nil
}

// TTLOf returns the time to live in props, or 0 if there is none or it is invalid.
func TTLOf(props []byte) time.Duration {
	text, ok := Property(props, "ttl")
	if !ok {
		return 0
	}
	ttl, _ := ParseTTL(text)
	return ttl
}

// ParseTTL parses decimal seconds, such as "30" or "0.25". It drops digits below a
// nanosecond, but a time above 0 does not become 0, which means no time to live.
func ParseTTL(text []byte) (ttl time.Duration, ok bool) {
	whole, digits := int64(0), 0
	rest := false // a digit below a nanosecond is not zero
	i := 0
	for ; i < len(text) && text[i] >= '0' && text[i] <= '9'; i++ {
		whole = whole*10 + int64(text[i]-'0')
		if whole > int64(MaxTTL/time.Second) {
			return 0, false
		}
		digits++
	}
	ttl = time.Duration(whole) * time.Second
	if i < len(text) && text[i] == '.' {
		unit := time.Second / 10
		for i++; i < len(text) && text[i] >= '0' && text[i] <= '9'; i++ {
			ttl += time.Duration(text[i]-'0') * unit
			rest = rest || unit == 0 && text[i] != '0'
			unit /= 10
			digits++
		}
	}
	if rest && ttl == 0 {
		ttl = 1
	}
	if i != len(text) || digits == 0 || ttl > MaxTTL {
		return 0, false
	}
	return ttl, true
}

// AppendTTL appends the property line for ttl.
func AppendTTL(dst []byte, ttl time.Duration) []byte {
	return append(appendSeconds(append(dst, "ttl="...), ttl), '\n')
}

// appendSeconds appends a time for ParseTTL.
func appendSeconds(dst []byte, ttl time.Duration) []byte {
	dst = strconv.AppendInt(dst, int64(ttl/time.Second), 10)
	if rest := int64(ttl % time.Second); rest != 0 {
		var room [10]byte
		digits := strconv.AppendInt(room[:0], int64(time.Second)+rest, 10)[1:] // with leading zeros
		dst = append(append(dst, '.'), bytes.TrimRight(digits, "0")...)
	}
	return dst
}

// AppendProperty appends a property line. It returns an error for a line that could not
// be parsed again: an empty name, a name with an equals sign, and a newline in either.
func AppendProperty(dst []byte, name, value string) ([]byte, error) {
	if name == "" || strings.ContainsAny(name, "=\n") || strings.IndexByte(value, '\n') >= 0 {
		return dst, errPropertyLine
	}
	dst = append(dst, name...)
	dst = append(dst, '=')
	dst = append(dst, value...)
	return append(dst, '\n'), nil
}
