package main

import (
	"net"
	"testing"
)

// answers returns a connection on which a server has said this and left.
func answers(t *testing.T, text string) *resp {
	t.Helper()
	here, there := net.Pipe()
	t.Cleanup(func() { here.Close() })
	go func() {
		_, _ = there.Write([]byte(text)) // the test may have read enough
		there.Close()
	}()
	return newRESP(here)
}

func TestRESP(t *testing.T) {
	t.Parallel()
	r := answers(t, "+OK\r\n%2\r\n$1\r\na\r\n:3\r\n$1\r\nb\r\n*2\r\n$-1\r\n_\r\n>1\r\n*1\r\n$0\r\n\r\n$5\r\nva\r\nl\r\n")
	for range 3 {
		if err := r.skip(); err != nil {
			t.Fatal(err)
		}
	}
	if b, err := r.bulk(); err != nil || string(b) != "va\r\nl" {
		t.Errorf("%q, %v", b, err)
	}
	for _, text := range []string{
		"", "*3", "-ERR no\r\n", ":3\r\n", "$x\r\n", "$\r\n", "$99999999999999999999\r\n", "$9\r\nshort\r\n", "\n", "\r\n",
	} {
		if b, err := answers(t, text).bulk(); err == nil {
			t.Errorf("%q is %q", text, b)
		}
	}
	if err := answers(t, "*2\r\n").count('*', 3); err == nil {
		t.Error("two elements are three")
	}
}
