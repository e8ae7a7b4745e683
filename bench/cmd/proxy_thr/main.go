// Command proxy_thr sends messages through a proxy and prints the throughput, with
// the arguments and the output of libzmq's tool of that name.
package main

import "clustermap/bench/internal/perf"

func main() { perf.ProxyThr.Main() }
