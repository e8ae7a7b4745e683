package queue

import (
	"testing"

	"clustermap/internal/testenv"
	"clustermap/zmtp"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	testContext = testenv.Context
	must        = testenv.Must
	eventually  = testenv.Eventually
	within      = testenv.Within
	newLender   = testenv.NewLender
)

// wire is the bytes of one message.
func wire(frames ...string) []byte {
	parts := make([][]byte, len(frames))
	for i, f := range frames {
		parts[i] = []byte(f)
	}
	return zmtp.AppendMessage(nil, parts...)
}
