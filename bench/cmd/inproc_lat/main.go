// Command inproc_lat asks one goroutine from another and prints the latency, with
// the arguments and the output of libzmq's tool of that name.
package main

import "clustermap/bench/internal/perf"

func main() { perf.InprocLat.Main() }
