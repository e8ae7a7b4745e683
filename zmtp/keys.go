package zmtp

import (
	"crypto/rand"
	"crypto/subtle"
	"fmt"
	"io"

	"golang.org/x/crypto/curve25519"
)

const (
	// KeySize is the bytes of a CURVE key.
	KeySize = 32
	// KeyText is the characters of a key in Z85.
	KeyText = KeySize / 4 * 5
)

// redacted is printed wherever a secret key would be.
const redacted = "zmtp.SecretKey(redacted)"

// PublicKey is a CURVE public key: a point of Curve25519.
type PublicKey [KeySize]byte

// SecretKey is a CURVE secret key. No way of printing or marshalling shows
// it, except [SecretKey.Z85], and except where package fmt does not call the
// value's methods: for the verbs %p and %w, which go vet rejects here, and in
// unexported fields. A type that holds a key in such a field should have a Format
// method of its own, as the types of this module have.
type SecretKey [KeySize]byte

// KeyPair is a secret key and the public key that belongs to it.
type KeyPair struct {
	Public PublicKey
	Secret SecretKey
}

// GenerateKeyPair returns a new key pair, from the system's random source.
func GenerateKeyPair() KeyPair {
	var p KeyPair
	fillRandom(p.Secret[:])
	p.Public = p.Secret.Public()
	return p
}

// fillRandom never fails: crypto/rand ends the program instead.
func fillRandom(b []byte) { _, _ = rand.Read(b) }

// Public returns the public key that belongs to k.
func (k SecretKey) Public() PublicKey {
	var out [KeySize]byte
	secret := [KeySize]byte(k)
	curve25519.ScalarBaseMult(&out, &secret)
	clear(secret[:])
	return out
}

// ParsePublicKey returns the key of the given 40 characters of Z85. The error
// Is ErrMalformed.
func ParsePublicKey(text string) (PublicKey, error) {
	k, err := parseKey(text)
	return PublicKey(k), err
}

// ParseSecretKey returns the key of the given 40 characters of Z85. The error
// Is ErrMalformed and tells nothing of the text.
func ParseSecretKey(text string) (SecretKey, error) {
	k, err := parseKey(text)
	return SecretKey(k), err
}

func parseKey(text string) (k [KeySize]byte, err error) {
	if len(text) != KeyText {
		return k, malformed("z85", "a key that is not of 40 characters")
	}
	b, err := DecodeZ85(text)
	if err != nil {
		return k, err
	}
	copy(k[:], b)
	clear(b)
	return k, nil
}

// IsZero reports whether k is all zeros, which is no key.
func (k PublicKey) IsZero() bool { return k == PublicKey{} }

// String returns k in Z85, 40 characters.
func (k PublicKey) String() string {
	text, _ := EncodeZ85(k[:])
	return text
}

// MarshalText returns k in Z85.
func (k PublicKey) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText parses Z85 as ParsePublicKey does.
func (k *PublicKey) UnmarshalText(text []byte) (err error) {
	*k, err = ParsePublicKey(string(text))
	return err
}

// IsZero reports whether k is all zeros, which is no key.
func (k SecretKey) IsZero() bool {
	var zero SecretKey
	return subtle.ConstantTimeCompare(k[:], zero[:]) == 1
}

// Z85 returns the secret itself, as 40 characters: to store it, never to log
// it.
func (k SecretKey) Z85() string {
	text, _ := EncodeZ85(k[:])
	return text
}

// String returns a text without the key.
func (k SecretKey) String() string { return redacted }

// GoString returns a text without the key.
func (k SecretKey) GoString() string { return redacted }

// Format prints a text without the key, whatever the verb.
func (k SecretKey) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, redacted) }

// MarshalText returns a text without the key: a configuration may be logged.
func (k SecretKey) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// UnmarshalText parses Z85 as ParseSecretKey does.
func (k *SecretKey) UnmarshalText(text []byte) (err error) {
	*k, err = ParseSecretKey(string(text))
	return err
}
