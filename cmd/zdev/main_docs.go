//go:build docs

package main

import (
	"os"

	"clustermap/internal/command/manpages"
)

// With the tag docs the program writes its manual pages and completion scripts.
func main() { os.Exit(manpages.Main(newRoot(), "")) }
