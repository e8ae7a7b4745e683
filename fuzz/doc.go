// Package fuzz holds the native fuzz targets of every decoder, and their
// corpora under testdata/fuzz.
//
// An ordinary "go test ./fuzz" runs each target over its corpus. To search for
// more, run one target at a time:
//
//	go test ./fuzz -run '^$' -fuzz '^FuzzDecoderSplit$' -fuzztime 1m -fuzzminimizetime 20x
//
// The last flag keeps the go command from spending most of the time on making
// merely interesting inputs smaller.
//
// An input that fails is written to the corpus by the go command; it is to be
// committed together with the correction.
package fuzz
