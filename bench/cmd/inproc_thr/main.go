// Command inproc_thr sends messages from one goroutine to another and prints the throughput, with
// the arguments and the output of libzmq's tool of that name.
package main

import "clustermap/bench/internal/perf"

func main() { perf.InprocThr.Main() }
