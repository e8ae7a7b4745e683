package zmtp

import (
	"bytes"
	"strings"
	"testing"
)

func TestZ85(t *testing.T) {
	t.Parallel()
	for text, data := range map[string]string{
		"":                     "",
		"HelloWorld":           "\x86\x4F\xD2\x6F\xB5\x59\xF7\x5B", // RFC 32
		"00000":                "\x00\x00\x00\x00",
		"%nSc0":                "\xff\xff\xff\xff",
		"0000000001":           "\x00\x00\x00\x00\x00\x00\x00\x01",
		"JTKVSB%%)wK0E.X)V>+}": "\x8E\x0B\xDD\x69\x76\x28\xB9\x1D\x8F\x24\x55\x87\xEE\x95\xC5\xB0"[:16],
	} {
		if got, err := EncodeZ85([]byte(data)); got != text || err != nil {
			t.Errorf("%x: %q %v, want %q", data, got, err, text)
		}
		if got, err := DecodeZ85(text); string(got) != data || err != nil {
			t.Errorf("%q: %x %v, want %x", text, got, err, data)
		}
	}
	const key = "r^/rM9M=rMToK)63O8dCvd9D<PY<7iGlC+{BiSnG" // both ways
	if data, err := DecodeZ85(key); err != nil {
		t.Error(err)
	} else if text, err := EncodeZ85(data); text != key || err != nil {
		t.Errorf("%q %v, want %q", text, err, key)
	}
	all := make([]byte, 1024)
	for i := range all {
		all[i] = byte(i * 37)
	}
	text, err := EncodeZ85(all)
	if err != nil || len(text) != 1280 {
		t.Fatal(len(text), err)
	}
	if back, err := DecodeZ85(text); !bytes.Equal(back, all) || err != nil {
		t.Error(err)
	}
}

func TestZ85Errors(t *testing.T) {
	t.Parallel()
	for n := range 64 {
		if _, err := EncodeZ85(make([]byte, n)); (err == nil) != (n%4 == 0) {
			t.Errorf("%d bytes: %v", n, err)
		} else if err != nil {
			wantError(t, err, ErrMalformed)
		}
		if _, err := DecodeZ85(strings.Repeat("0", n)); (err == nil) != (n%5 == 0) {
			t.Errorf("%d characters: %v", n, err)
		} else if err != nil {
			wantError(t, err, ErrMalformed)
		}
	}
	for c := range 256 {
		_, err := DecodeZ85("000" + string([]byte{byte(c)}) + "0")
		if valid := strings.IndexByte(z85Digits, byte(c)) >= 0; (err == nil) != valid {
			t.Errorf("character %#x: %v", c, err)
		}
	}
	// One above 2^32-1, and the largest group.
	for _, text := range []string{"%nSc1", "#####", "00000%nSc1", "####\x047", "####\x100", "####\x037"} {
		_, err := DecodeZ85(text)
		wantError(t, err, ErrMalformed)
	}
}
