package zmtp

import (
	"crypto/rand"
	"crypto/subtle"
	"fmt"
	"io"

	"golang.org/x/crypto/curve25519"
)

const (
	// KeySize is the size of a CURVE key in bytes.
	KeySize = 32
	// KeyText is the number of characters of a key in Z85.
	KeyText = KeySize / 4 * 5
)

// redacted is printed in place of a secret key.
const redacted = "zmtp.SecretKey(redacted)"

// PublicKey is a CURVE public key, a point of Curve25519.
type PublicKey [KeySize]byte

// SecretKey is a CURVE secret key. Only [SecretKey.Z85] reveals it; formatting
// and marshalling do not. The exceptions are cases in which package fmt does
// not call the methods of a value: the verbs %p and %w, which go vet rejects
// here, unexported fields of structs, and what a pointer in a field points to
// if the verb does not fit a pointer, such as %s. A type with a key behind such
// a field should have its own Format method, like the types of this module.
type SecretKey [KeySize]byte

// KeyPair is a secret key and the corresponding public key.
type KeyPair struct {
	Public PublicKey
	Secret SecretKey
}

// GenerateKeyPair returns a new key pair, generated with [crypto/rand].
func GenerateKeyPair() KeyPair {
	var p KeyPair
	fillRandom(p.Secret[:])
	p.Public = p.Secret.Public()
	return p
}

// fillRandom never fails: crypto/rand ends the program instead.
func fillRandom(b []byte) { _, _ = rand.Read(b) }

// Public returns the public key that corresponds to k.
func (k SecretKey) Public() PublicKey {
	var out [KeySize]byte
	secret := [KeySize]byte(k)
	curve25519.ScalarBaseMult(&out, &secret)
	clear(secret[:])
	return out
}

// ParsePublicKey parses a public key in Z85, 40 characters. The error matches
// ErrMalformed.
func ParsePublicKey(text string) (PublicKey, error) {
	k, err := parseKey(text)
	return PublicKey(k), err
}

// ParseSecretKey parses a secret key in Z85, 40 characters. The error matches
// ErrMalformed and reveals nothing of the text.
func ParseSecretKey(text string) (SecretKey, error) {
	k, err := parseKey(text)
	return SecretKey(k), err
}

func parseKey(text string) (k [KeySize]byte, err error) {
	if len(text) != KeyText {
		return k, malformed("z85", "key does not have 40 characters")
	}
	b, err := DecodeZ85(text)
	if err != nil {
		return k, err
	}
	copy(k[:], b)
	clear(b)
	return k, nil
}

// IsZero reports whether k is all zeros, which is not a valid key.
func (k PublicKey) IsZero() bool { return k == PublicKey{} }

// String returns k in Z85, 40 characters.
func (k PublicKey) String() string {
	text, _ := EncodeZ85(k[:])
	return text
}

// MarshalText returns k in Z85.
func (k PublicKey) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText parses a key like ParsePublicKey.
func (k *PublicKey) UnmarshalText(text []byte) (err error) {
	*k, err = ParsePublicKey(string(text))
	return err
}

// IsZero reports whether k is all zeros, which is not a valid key. It takes
// constant time.
func (k SecretKey) IsZero() bool {
	var zero SecretKey
	return subtle.ConstantTimeCompare(k[:], zero[:]) == 1
}

// Z85 returns the secret key itself in Z85, 40 characters. Use it to store the
// key, and never log the result.
func (k SecretKey) Z85() string {
	text, _ := EncodeZ85(k[:])
	return text
}

// String returns a fixed text without the key.
func (k SecretKey) String() string { return redacted }

// GoString returns a fixed text without the key.
func (k SecretKey) GoString() string { return redacted }

// Format implements [fmt.Formatter]. It writes a fixed text without the key for
// every verb.
func (k SecretKey) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, redacted) }

// MarshalText returns a fixed text without the key, so that configurations can
// be logged.
func (k SecretKey) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// UnmarshalText parses a key like ParseSecretKey.
func (k *SecretKey) UnmarshalText(text []byte) (err error) {
	*k, err = ParseSecretKey(string(text))
	return err
}
