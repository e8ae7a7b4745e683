package zmtp

import (
	"encoding/binary"
	"math"
	"strings"
)

// Names of the properties defined by RFC 37. Senders must use this spelling,
// because libzmq compares names case-sensitively.
const (
	PropertySocketType = "Socket-Type"
	PropertyIdentity   = "Identity"
	PropertyResource   = "Resource"
)

// Property is a property in the metadata of a connection.
type Property struct {
	Name  string // 1 to 255 letters, digits, or characters of "-_.+"
	Value []byte // at most 2^31-1 bytes
}

// Metadata is a list of properties, in the order in which the peer has
// announced them.
type Metadata []Property

// Get returns the value of the first property with the given name, and whether
// there is one. Names are not case-sensitive.
func (m Metadata) Get(name string) ([]byte, bool) {
	for i := range m {
		if strings.EqualFold(m[i].Name, name) {
			return m[i].Value, true
		}
	}
	return nil, false
}

// AppendProperty appends the wire form of a property to dst. The name and the
// value must satisfy the rules of [Property].
func AppendProperty(dst []byte, name string, value []byte) []byte {
	dst = append(dst, byte(len(name)))
	dst = append(dst, name...)
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(value)))
	return append(dst, value...)
}

// ParseMetadata parses b, which must consist of properties, like the data of a
// READY command. Values refer to b; names are copies. Duplicate names are kept,
// and Get returns the first one. The error matches ErrMalformed.
//
// The memory allocated is proportional to len(b).
func ParseMetadata(b []byte) (Metadata, error) {
	// Counted first, so that one allocation of the right size suffices: a
	// property may have six bytes here and takes forty in memory.
	count := 0
	for rest := b; len(rest) > 0; count++ {
		name, _, after, err := nextProperty(rest)
		if err != nil {
			return nil, err
		}
		if !validName(name) {
			return nil, malformed("metadata", "property name")
		}
		rest = after
	}
	if count == 0 {
		return nil, nil
	}
	m := make(Metadata, count)
	for i := range m {
		name, value, after, _ := nextProperty(b)
		m[i] = Property{Name: nameString(name), Value: value}
		b = after
	}
	return m, nil
}

// nextProperty splits the first property off b, which must not be empty.
func nextProperty(b []byte) (name, value, rest []byte, err error) {
	end := 1 + int(b[0])
	if end+4 > len(b) {
		return nil, nil, nil, malformed("metadata", "property cut short")
	}
	name = b[1:end]
	size := binary.BigEndian.Uint32(b[end:])
	rest = b[end+4:]
	if size > math.MaxInt32 || int(size) > len(rest) {
		return nil, nil, nil, malformed("metadata", "value cut short")
	}
	return name, rest[:size:size], rest[size:], nil
}

// nameString returns string(name), without an allocation for the names that
// every peer sends.
func nameString(name []byte) string {
	switch string(name) {
	case PropertySocketType:
		return PropertySocketType
	case PropertyIdentity:
		return PropertyIdentity
	}
	return string(name)
}

// validName reports whether name is a valid property name (RFC 37, section "The
// NULL Security Mechanism").
func validName[T string | []byte](name T) bool {
	if len(name) == 0 || len(name) > shortBody {
		return false
	}
	for i := 0; i < len(name); i++ {
		switch c := name[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		case c == '-', c == '_', c == '.', c == '+':
		default:
			return false
		}
	}
	return true
}
