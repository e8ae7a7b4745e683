// Package loopback provides addresses for tests whose servers end while their clients
// keep connecting. The system may assign a port that has become free to another test,
// in this or another process, and the clients would connect to that.
package loopback

import (
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"sync"
	"syscall"
	"testing"
)

// The loopback interface has blocks of addresses, each for one process. No number of an
// address is 0 or 255.
const (
	numbers = 254
	blocks  = numbers * numbers
	port    = 5555 // of the UDP sockets that claim blocks
)

var own struct {
	mu     sync.Mutex
	block  int // of the next address
	left   int // addresses of the block that remain
	claims []net.PacketConn
}

// Own returns an address of the loopback interface that no other test uses, in this or
// another process that calls Own. On systems other than Linux, which has all of
// 127.0.0.0/8, it returns 127.0.0.1.
func Own() string {
	if runtime.GOOS != "linux" {
		return "127.0.0.1"
	}
	own.mu.Lock()
	defer own.mu.Unlock()
	if own.left == 0 {
		claim()
		own.left = numbers
	}
	own.left--
	return address(own.block, numbers-own.left)
}

// OwnPorts is Own for programs with fixed ports, all of which the address has to itself. On
// systems with one address it skips the test.
func OwnPorts(t testing.TB) string {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("the programs have fixed ports, so each test needs an address of its own")
	}
	return Own()
}

// claim finds a block that no other process has, and keeps it until this one ends. own.mu
// must be held.
func claim() {
	if own.claims == nil {
		own.block = os.Getpid() % blocks // most likely it is free
	}
	for range blocks {
		own.block = (own.block + 1) % blocks
		c, err := net.ListenPacket("udp4", fmt.Sprint(address(own.block, 1), ":", port))
		if err == nil {
			own.claims = append(own.claims, c)
		}
		if !errors.Is(err, syscall.EADDRINUSE) {
			return
		}
	}
}

// address returns an address of a block, of which the first one has the number 1.
func address(block, number int) string {
	return fmt.Sprintf("127.%d.%d.%d", 1+block/numbers, 1+block%numbers, number)
}
