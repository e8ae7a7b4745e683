module clustermap/bench/peers

go 1.26.0

require (
	clustermap v0.0.0
	github.com/go-zeromq/zmq4 v0.17.0
	github.com/pebbe/zmq4 v1.4.0
	github.com/puzpuzpuz/xsync/v4 v4.5.0
	golang.org/x/sys v0.49.0
)

require (
	github.com/go-zeromq/goczmq/v4 v4.2.2 // indirect
	github.com/google/btree v1.1.3 // indirect
	github.com/klauspost/cpuid/v2 v2.4.2 // indirect
	golang.org/x/crypto v0.58.0 // indirect
	golang.org/x/sync v0.24.0 // indirect
	golang.org/x/text v0.43.0 // indirect
)

replace clustermap => ../..
