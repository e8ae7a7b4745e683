// Command blackbox measures patterns/blackbox: how many messages of 100 bytes a second it takes from a
// publisher and works on, and how many cores that keeps busy.
//
//	go run ./bench/cmd/blackbox -rounds 5 -cores 1 -pub-cores 0
//
// The command of the same name in bench/peers measures libzmq beside it.
package main

import "clustermap/bench/internal/blackbox"

func main() { blackbox.Main(nil) }
