package zmtp

import (
	"bytes"
	"encoding/binary"
	"testing"

	"golang.org/x/crypto/nacl/secretbox"
)

// boxSizes are the sizes at which boxes are compared: all small ones, and some
// large ones.
func boxSizes() (sizes []int) {
	for n := range 1500 {
		sizes = append(sizes, n)
	}
	return append(sizes, 2015, 2016, 2017, 4096, 65535, 65536, 65537, 1<<20+3)
}

// TestMessageBox checks that boxes of every size are those of NaCl, with the flags
// as their first byte.
func TestMessageBox(t *testing.T) {
	t.Parallel()
	var key secretKey
	copy(key[:], pattern(77)[45:])
	var out, in messageBox
	out.init(&key, prefixToServer)
	in.init(&key, prefixToServer)
	for i, size := range boxSizes() {
		plain := pattern(size + 1)
		plain[0] = byte(i)
		short := binary.BigEndian.AppendUint64(nil, uint64(i)*0x0102030405060708+1)
		want := secretbox.Seal(nil, plain, nonceOf(prefixToServer, short), &key)
		got := out.seal(append(make([]byte, 0, 3+len(want)), "dst"...), short, plain[0], plain[1:])
		if string(got[:3]) != "dst" || !bytes.Equal(got[3:], want) {
			t.Fatalf("%d bytes: another box", size)
		}
		opened, ok := in.open(append(make([]byte, 0, 3+len(plain)), "dst"...), short, want)
		if !ok || string(opened[:3]) != "dst" || !bytes.Equal(opened[3:], plain) {
			t.Fatalf("%d bytes: does not open", size)
		}
		at := i % len(want)
		want[at] ^= 1 << (i % 8)
		if opened, ok := in.open(append(make([]byte, 0, 3+len(plain)), "dst"...), short, want); ok || string(opened) != "dst" {
			t.Fatalf("%d bytes: opens though byte %d was changed", size, at)
		}
	}
}
