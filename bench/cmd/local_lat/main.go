// Command local_lat answers over a bound REP socket, with
// the arguments and the output of libzmq's tool of that name.
package main

import "clustermap/bench/internal/perf"

func main() { perf.LocalLat.Main() }
