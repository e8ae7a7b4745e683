//go:build !docs

// Command zdev runs ZeroMQ devices: brokers, proxies, caches and taps, and the
// commands that use them.
//
//	zdev proxy --kind pubsub --frontend tcp://*:5559 --backend tcp://*:5560
//	zdev tap --frontend tcp://127.0.0.1:6000 --backend tcp://*:6001
//
// For more, use --help with each command.
package main

import (
	"os"

	"clustermap/internal/command"
)

func main() { os.Exit(command.Main(newRoot())) }
