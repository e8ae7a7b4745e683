package main

import (
	"slices"
	"testing"

	"clustermap/internal/command"

	"github.com/spf13/pflag"
)

// TestEndpointsWithoutTransport: HOST:PORT stands for tcp://HOST:PORT, also after a prefix.
func TestEndpointsWithoutTransport(t *testing.T) {
	t.Parallel()
	s := side{flag: "frontend", list: []string{"localhost:1", "*:2", "bind:[::1]:3", "connect:h:4", "ipc://p", "[fe80::1%v0]:5"}}
	got, err := s.parse()
	if err != nil {
		t.Fatal(err)
	}
	want := []endpoint{
		{"tcp://localhost:1", false}, {"tcp://*:2", true}, {"tcp://[::1]:3", true}, {"tcp://h:4", false}, {"ipc://p", false},
		{"tcp://[fe80::1%v0]:5", false},
	}
	if !slices.Equal(got, want) {
		t.Errorf("%v", got)
	}

	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	one, all := flags.String("one", "tcp://standard:1", ""), flags.StringArray("all", []string{"tcp://standard:1"}, "")
	before := flags.FlagUsages()
	command.Endpoints(flags, "one", "all")
	if after := flags.FlagUsages(); after != before {
		t.Errorf("the help was\n%s and is\n%s", before, after)
	}
	if err := flags.Parse([]string{"--one", "h:1", "--all", "h:2", "--all", "ipc://p"}); err != nil {
		t.Fatal(err)
	}
	if *one != "tcp://h:1" || !slices.Equal(*all, []string{"tcp://h:2", "ipc://p"}) {
		t.Errorf("%s, %v", *one, *all)
	}
}
