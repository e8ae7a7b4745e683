package link

import (
	"testing"

	"clustermap/internal/testenv"

	"go.uber.org/goleak"
)

const hang = testenv.Hang

var must = testenv.Must

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
