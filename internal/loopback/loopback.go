// Package loopback provides addresses for tests whose servers end while their clients
// keep connecting. The system may assign a port that has become free to another test,
// in this or another process, and the clients would connect to that.
package loopback

import (
	"fmt"
	"os"
	"runtime"
	"sync/atomic"
)

var count atomic.Uint32

// Own returns an address of the loopback interface that no other test uses. On systems
// other than Linux, which has all of 127.0.0.0/8, it returns 127.0.0.1.
func Own() string {
	if runtime.GOOS != "linux" {
		return "127.0.0.1"
	}
	n := count.Add(1) - 1
	// The first number depends on the process, the others on the test. None is 0
	// or 255.
	return fmt.Sprintf("127.%d.%d.%d", 1+os.Getpid()%254, 1+n/254%254, 1+n%254)
}
