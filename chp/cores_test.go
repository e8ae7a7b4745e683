package chp

import (
	"runtime"
	"testing"
)

func TestCores(t *testing.T) {
	t.Parallel()
	if n := cores(); n < 1 || n > runtime.GOMAXPROCS(0) {
		t.Errorf("%d cores of %d processors", n, runtime.GOMAXPROCS(0))
	}
}
