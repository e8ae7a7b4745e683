// Package ports finds ports for servers that must know each other's before they start: they are chosen
// first, and must still be free then.
package ports

import (
	"fmt"
	"math/rand/v2"
	"net"
	"runtime"
	"strconv"
)

// Own returns a loopback address that other programs hardly use. On Linux all of 127.0.0.0/8 is
// loopback.
func Own() string {
	if runtime.GOOS != "linux" {
		return "127.0.0.1"
	}
	return fmt.Sprintf("127.%d.%d.%d", 1+rand.IntN(254), 1+rand.IntN(254), 1+rand.IntN(254))
}

// Free returns the first of n consecutive ports that are free.
func Free(host string, n int) (first int, err error) {
	for range 100 {
		if first, err = try(host, n); err == nil {
			return first, nil
		}
	}
	return 0, fmt.Errorf("no %d free ports in a row: %w", n, err)
}

func try(host string, n int) (first int, err error) {
	for i := range n {
		port := 0
		if i > 0 {
			port = first + i
		}
		l, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(port)))
		if err != nil {
			return 0, err
		}
		defer l.Close() // keep all of them until the last one is found
		if i == 0 {
			first = l.Addr().(*net.TCPAddr).Port
		}
	}
	return first, nil
}
