// Command remote_thr sends messages over a connected PUSH socket, with
// the arguments and the output of libzmq's tool of that name.
package main

import "clustermap/bench/internal/perf"

func main() { perf.RemoteThr.Main() }
