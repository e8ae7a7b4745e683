// Command local_thr receives messages over a bound PULL socket and prints the throughput, with
// the arguments and the output of libzmq's tool of that name.
package main

import "clustermap/bench/internal/perf"

func main() { perf.LocalThr.Main() }
