// Command majordomo measures patterns/majordomo: how many requests a second go through
// its broker with 1, 10 and 100 workers, and the processor time of each.
//
//	go run ./bench/cmd/majordomo
//
// The command of the same name in bench/peers measures a broker on libzmq beside it.
package main

import "clustermap/bench/internal/majordomo"

func main() { majordomo.Main(nil) }
