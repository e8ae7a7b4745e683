// Command majordomo measures the broker of patterns/majordomo and, in turn with it, one
// in the design of the guide's, in C on libzmq: how many requests a second go through
// each, with the same clients and workers, and the processor time of each.
//
//	cd bench/peers && go run ./cmd/majordomo
package main

import (
	"clustermap/bench/internal/majordomo"
	"clustermap/bench/peers/internal/libzmq"
)

func main() {
	majordomo.Main(map[string]majordomo.Side{"libzmq": func(ready func(string)) error {
		return libzmq.RunMajordomo("tcp://127.0.0.1:*", ready)
	}})
}
