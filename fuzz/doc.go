// Package fuzz holds the fuzz targets of package zmtp. Their corpora are in
// testdata/fuzz.
//
// "go test ./fuzz" runs each target over its corpus. To search for new inputs,
// run one target at a time:
//
//	go test ./fuzz -run '^$' -fuzz '^FuzzDecoderSplit$' -fuzztime 1m -fuzzminimizetime 20x
//
// The last flag limits the time spent on minimizing inputs that only increase
// coverage.
//
// The go command writes an input that fails to the corpus. Commit it together
// with the fix.
package fuzz
