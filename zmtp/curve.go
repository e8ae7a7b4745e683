package zmtp

import (
	"crypto/subtle"
	"sync"

	"golang.org/x/crypto/nacl/box"
	"golang.org/x/crypto/nacl/secretbox"
)

// The commands of a CURVE handshake (RFC 26, section "Formal Grammar"). All sizes
// are in bytes and exclude the command name:
//
//	HELLO     version 2, zeros 72, C' 32, short nonce 8, Box[zeros 64](C'→S)
//	WELCOME   long nonce 16, Box[S' 32, cookie 96](S→C')
//	          cookie = long nonce 16, secretbox[C' 32, s' 32](K)
//	INITIATE  cookie 96, short nonce 8, Box[C 32, vouch 96, properties](C'→S')
//	          vouch = long nonce 16, Box[C' 32, S 32](C→S')
//	READY     short nonce 8, Box[properties](S'→C')
//
// C and S are the long-term public keys of client and server, C' and S' those of
// this connection; c, s, c' and s' are the secret keys; K is the server's cookie
// key.
const (
	curveName = "CURVE"

	shortNonce = 8
	longNonce  = 16
	boxTag     = box.Overhead

	helloPadding  = 72
	helloSigned   = 64
	helloSize     = 2 + helloPadding + KeySize + shortNonce + boxTag + helloSigned
	cookieSize    = longNonce + boxTag + 2*KeySize
	welcomeSize   = longNonce + boxTag + KeySize + cookieSize
	vouchSize     = longNonce + boxTag + 2*KeySize
	initiateFixed = cookieSize + shortNonce + boxTag + KeySize + vouchSize
	readyFixed    = shortNonce + boxTag
)

// curveVersion is the version of CURVE in a HELLO: 1.0.
const curveVersion = "\x01\x00"

// Prefixes of the nonces: 16 bytes before a short one and 8 before a long one.
const (
	prefixHello    = "CurveZMQHELLO---"
	prefixWelcome  = "WELCOME-"
	prefixCookie   = "COOKIE--"
	prefixVouch    = "VOUCH---"
	prefixInitiate = "CurveZMQINITIATE"
	prefixReady    = "CurveZMQREADY---"
	prefixToServer = "CurveZMQMESSAGEC"
	prefixToClient = "CurveZMQMESSAGES"
)

// secretKey is a key with which boxes are sealed and opened.
type secretKey = [32]byte

// nonceOf returns the nonce that consists of a prefix and the bytes that are
// sent.
func nonceOf(prefix string, sent []byte) *[24]byte {
	var n [24]byte
	copy(n[copy(n[:], prefix):], sent)
	return &n
}

// weakKey is the key that results from a public key of low order, with any secret key.
var weakKey = sync.OnceValue(func() (key secretKey) {
	box.Precompute(&key, &[KeySize]byte{}, &[KeySize]byte{1})
	return key
})

// agree computes the key shared by the owner of public and us. The error
// matches ErrCryptographic: some public keys, such as all zeros, give a key
// that does not depend on ours.
func agree(key *secretKey, public *PublicKey, secret *SecretKey) error {
	box.Precompute(key, (*[KeySize]byte)(public), (*[KeySize]byte)(secret))
	weak := weakKey()
	if subtle.ConstantTimeCompare(key[:], weak[:]) == 1 {
		return cryptographic("handshake", "public key of low order")
	}
	return nil
}

// seal appends the box of plain under key to dst.
func seal(dst, plain []byte, nonce *[24]byte, key *secretKey) []byte {
	return secretbox.Seal(dst, plain, nonce, key)
}

// open appends the contents of the box sealed to dst. The error matches
// ErrCryptographic.
func open(dst, sealed []byte, nonce *[24]byte, key *secretKey, what string) ([]byte, error) {
	out, ok := secretbox.Open(dst, sealed, nonce, key)
	if !ok {
		return nil, cryptographic("handshake", what+" does not open")
	}
	return out, nil
}

// cryptographic returns the error for data that is not authentic.
func cryptographic(op, reason string) error {
	return &ProtocolError{Op: op, Reason: reason, Err: ErrCryptographic}
}
