// Package loopback has addresses for tests whose servers end while clients of
// theirs go on dialling. A port that became free may be the next one that the
// system gives to another test, here or in another process, which those clients
// would then find.
package loopback

import (
	"fmt"
	"os"
	"runtime"
	"sync/atomic"
)

var count atomic.Uint32

// Own returns an address of the loopback interface that no other test uses, as
// far as the system has more than one: Linux answers on all of 127.0.0.0/8.
func Own() string {
	if runtime.GOOS != "linux" {
		return "127.0.0.1"
	}
	n := count.Add(1) - 1
	// The process, then the test; neither 0 nor 255 anywhere.
	return fmt.Sprintf("127.%d.%d.%d", 1+os.Getpid()%254, 1+n/254%254, 1+n%254)
}
