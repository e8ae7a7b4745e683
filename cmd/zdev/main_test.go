package main

import (
	"os"
	"testing"

	"clustermap/internal/commandtest"
)

// zdev is the command under test.
var zdev *commandtest.Program

func TestMain(m *testing.M) {
	os.Exit(commandtest.Main(m, func(p *commandtest.Program) { zdev = p }))
}

// exists reports whether there is a file.
func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
