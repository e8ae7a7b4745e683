package interop

import (
	"testing"

	"clustermap/internal/testenv"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	testenv.Names()
	goleak.VerifyTestMain(m)
}
