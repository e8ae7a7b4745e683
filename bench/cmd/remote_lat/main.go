// Command remote_lat asks over a connected REQ socket and prints the latency, with
// the arguments and the output of libzmq's tool of that name.
package main

import "clustermap/bench/internal/perf"

func main() { perf.RemoteLat.Main() }
