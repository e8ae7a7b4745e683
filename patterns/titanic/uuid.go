package titanic

import (
	"encoding/hex"
	"errors"

	"github.com/google/uuid"
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
func newUUID() UUID { return UUID(uuid.New()) }

// String returns the 32 characters, in lower case.
func (u UUID) String() string { return hex.EncodeToString(u[:]) }

// MarshalText implements encoding.TextMarshaler.
func (u UUID) MarshalText() ([]byte, error) { return []byte(u.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (u *UUID) UnmarshalText(text []byte) (err error) {
	*u, err = parseUUID(text)
	return err
}
