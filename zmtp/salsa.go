package zmtp

import (
	"encoding/binary"
	"math/bits"
)

// streamSize is how many octets of key stream are made at a time: eight blocks.
const streamSize = 8 * 64

// sigma is the constant of Salsa20 in its state.
var sigma = [4]uint32{0x61707865, 0x3320646e, 0x79622d32, 0x6b206574}

// salsaState returns the state of Salsa20 with the given key, and 16 octets for
// words 6 to 9: a nonce and a count, or what XSalsa20 makes a key of.
func salsaState(key *secretKey, input []byte) (x [16]uint32) {
	word := binary.LittleEndian.Uint32
	for i := range 4 {
		x[5*i] = sigma[i]
		x[1+i] = word(key[4*i:])
		x[11+i] = word(key[16+4*i:])
		x[6+i] = word(input[4*i:])
	}
	return x
}

// hsalsa makes the key of XSalsa20's stream from a key and the first 16 octets
// of the nonce. In CURVE these are the same for all messages of a direction.
func hsalsa(key *secretKey, nonce []byte) (out secretKey) {
	x := salsaState(key, nonce)
	for range 10 {
		quarter(&x[0], &x[4], &x[8], &x[12])
		quarter(&x[5], &x[9], &x[13], &x[1])
		quarter(&x[10], &x[14], &x[2], &x[6])
		quarter(&x[15], &x[3], &x[7], &x[11])
		quarter(&x[0], &x[1], &x[2], &x[3])
		quarter(&x[5], &x[6], &x[7], &x[4])
		quarter(&x[10], &x[11], &x[8], &x[9])
		quarter(&x[15], &x[12], &x[13], &x[14])
	}
	for i, w := range [8]int{0, 5, 10, 15, 6, 7, 8, 9} {
		binary.LittleEndian.PutUint32(out[4*i:], x[w])
	}
	return out
}

// quarter is a quarter of a round of Salsa20.
func quarter(a, b, c, d *uint32) {
	*b ^= bits.RotateLeft32(*a+*d, 7)
	*c ^= bits.RotateLeft32(*b+*a, 9)
	*d ^= bits.RotateLeft32(*c+*b, 13)
	*a ^= bits.RotateLeft32(*d+*c, 18)
}
