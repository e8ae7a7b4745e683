package access

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"strings"

	"golang.org/x/crypto/bcrypt"
)

// Errors of HashPassword and HashToken.
var (
	ErrPassword = errors.New("access: a password has 1 to 72 bytes")
	ErrToken    = errors.New("access: a token has 20 characters or more, none of them a space")
)

// HashPassword returns what the file has for a password. The hash is slow on purpose, since people
// choose passwords that can be guessed.
func HashPassword(password string) (string, error) {
	if password == "" || len(password) > maxPassword {
		return "", ErrPassword
	}
	hash, err := bcrypt.GenerateFromPassword([]byte(password), bcrypt.DefaultCost)
	return string(hash), err
}

// NewToken returns a random token, and its hash.
func NewToken() (token, hash string) {
	var b [tokenBytes]byte
	rand.Read(b[:]) // never fails
	token = "chp_" + base64.RawURLEncoding.EncodeToString(b[:])
	return token, tokenPrefix + hashToken(token)
}

// HashToken returns what the file has for a token. Its hash is fast, so a token must be random: see NewToken.
func HashToken(token string) (string, error) {
	if len(token) < leastToken || strings.ContainsAny(token, " \t\r\n") {
		return "", ErrToken
	}
	return tokenPrefix + hashToken(token), nil
}

// tokenPrefix names the hash of a token.
const tokenPrefix = "sha256:"

// hashToken returns the hexadecimal hash of a token.
func hashToken(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

// isTokenHash reports whether text is the hash of a token.
func isTokenHash(text string) bool {
	digits, ok := strings.CutPrefix(text, tokenPrefix)
	if !ok || len(digits) != 2*sha256.Size || strings.ToLower(digits) != digits {
		return false
	}
	_, err := hex.DecodeString(digits)
	return err == nil
}
