module clustermap/bench/peers

go 1.26.0

require (
	clustermap v0.0.0
	github.com/puzpuzpuz/xsync/v4 v4.5.0
)

require (
	github.com/google/uuid v1.6.0 // indirect
	github.com/klauspost/cpuid/v2 v2.4.2 // indirect
	golang.org/x/sys v0.49.0 // indirect
)

replace clustermap => ../..
