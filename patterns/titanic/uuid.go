package titanic

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
)

// A UUID identifies a stored request and its reply. Anyone who has it can read the reply
// and delete both, so it should be kept secret. 122 bits of it are random.
type UUID [16]byte

// ErrUUID is returned by ParseUUID.
var ErrUUID = errors.New("titanic: a UUID is exactly 32 hexadecimal characters")

// ParseUUID parses exactly 32 hexadecimal characters, in upper or lower case.
func ParseUUID(text string) (UUID, error) { return parseUUID([]byte(text)) }

func parseUUID(text []byte) (u UUID, err error) {
	if len(text) != hex.EncodedLen(len(u)) {
		return UUID{}, ErrUUID
	}
	if _, err := hex.Decode(u[:], text); err != nil {
		return UUID{}, ErrUUID
	}
	return u, nil
}

// newUUID returns a random UUID (RFC 9562, version 4).
func newUUID() (u UUID) {
	rand.Read(u[:]) // never fails
	u[6] = u[6]&0x0f | 0x40
	u[8] = u[8]&0x3f | 0x80
	return u
}

// String returns the 32 characters, in lower case.
func (u UUID) String() string { return hex.EncodeToString(u[:]) }

// MarshalText implements encoding.TextMarshaler.
func (u UUID) MarshalText() ([]byte, error) { return []byte(u.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (u *UUID) UnmarshalText(text []byte) (err error) {
	*u, err = parseUUID(text)
	return err
}
