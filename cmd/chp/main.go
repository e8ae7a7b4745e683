//go:build !docs

// Command chp runs and uses a Clustered Hashmap: a server, and the commands
// that read, write, watch, save, restore and measure the map it holds.
//
//	chp serve                 runs a server on ports 5556, 5557 and 5558
//	chp set /lamp/1 on        sets a key
//	chp get /lamp/1           prints its value
//	chp ls -l /lamp/          lists keys
//	chp watch /lamp/          prints the keys, then every change
//
// For more, use --help with each command.
package main

import (
	"os"

	"clustermap/cmd/chp/internal/bench"
	"clustermap/internal/command"
)

func main() {
	bench.Main()
	os.Exit(command.Main(newRoot()))
}
