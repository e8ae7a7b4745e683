//go:build unix

package titanic

import (
	"os/exec"
	"sync"
	"testing"
)

// TestOpenWhileStarting: a process that this one starts has its locks until it executes its
// program. A store can be opened meanwhile.
func TestOpenWhileStarting(t *testing.T) {
	t.Parallel()
	ended := make(chan struct{})
	var starting sync.WaitGroup
	for range 2 {
		starting.Go(func() {
			for {
				select {
				case <-ended:
					return
				default:
					_ = exec.Command("true").Run() // only its start matters
				}
			}
		})
	}
	for range 100 {
		s, err := openStore(Options{Dir: t.TempDir()}, nil, nil)
		if err != nil {
			t.Error(err)
			break
		}
		s.close()
	}
	close(ended)
	starting.Wait()
}
