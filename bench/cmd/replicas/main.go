// Command replicas computes what a cluster needs to serve many replicas of a map: how many nodes, how much network, and how
// long replicas need to come back when a node is lost. It simulates that loss, too.
//
//	go run ./bench/cmd/replicas -replicas 100000 -updates 1000 -update 100 -map 100e6
//
// What a node can do is computed from the processor times that docs/PERFORMANCE.md reports, which flags replace.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"time"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		os.Exit(2)
	}
}

func run(args []string, out io.Writer) error {
	var f fleet
	var k costs
	flags := flag.NewFlagSet("replicas", flag.ContinueOnError)
	flags.IntVar(&f.Replicas, "replicas", 100_000, "replicas")
	flags.Float64Var(&f.Updates, "updates", 1000, "updates a second")
	flags.Float64Var(&f.Update, "update", 100, "bytes of an update on the wire: 60 and the key and the value")
	flags.Float64Var(&f.Map, "map", 100e6, "bytes of the map")
	flags.DurationVar(&f.Delay, "delay", 50*time.Millisecond, "time in which an update is to reach all replicas")
	flags.DurationVar(&f.Detect, "heartbeat-timeout", 5*time.Second, "silence after which a replica gives up a node")
	flags.DurationVar(&f.Beat, "heartbeat", time.Second, "time between heartbeats")
	flags.Float64Var(&f.Cores, "cores", 8, "processors of a node")
	flags.Float64Var(&f.Network, "network", 1.25e9, "bytes a second of a node's network")
	flags.IntVar(&f.Connections, "max-clients", 10_000, "replicas that a node takes")
	flags.Float64Var(&f.Load, "load", 0.5, "part of a node that updates may take")
	flags.DurationVar(&k.Write, "write", 4*time.Microsecond, "processor time of a write to a replica")
	flags.DurationVar(&k.Delivery, "delivery", 28*time.Nanosecond, "processor time of an update in it")
	flags.DurationVar(&k.Resume, "resume", 270*time.Microsecond, "processor time of a replica that comes back")
	flags.DurationVar(&k.Snapshot, "snapshot", 1200*time.Microsecond, "processor time of a megabyte of a snapshot")
	flags.SetOutput(out)
	if err := flags.Parse(args); err != nil {
		return err
	}
	if f.Replicas < 1 || f.Updates < 0 || f.Update < 0 || f.Map < 0 || f.Delay <= 0 || f.Cores < 1 || f.Network <= 0 || f.Connections < 1 || f.Load <= 0 || f.Load >= 1 {
		fmt.Fprintln(out, "replicas: a size, a rate or a time is out of range")
		return flag.ErrHelp
	}
	f.print(out, k)
	return nil
}

// print prints the plan, and what the simulation shows.
func (f fleet) print(out io.Writer, k costs) {
	p := f.plan(k)
	fmt.Fprintf(out, "%d replicas of %s, %.0f updates/s of %s\n\n", f.Replicas, bytes(f.Map), f.Updates, bytes(f.Update))
	fmt.Fprintf(out, "replicas a node    %8d by connections\n", p.ByConnections)
	fmt.Fprintf(out, "                   %8d by its network\n", p.ByNetwork)
	fmt.Fprintf(out, "                   %8d by its processors, so that an update is there within %v\n", p.ByProcessors, f.Delay)
	fmt.Fprintf(out, "nodes              %8d, one to spare: three or five with a vote, the others without\n", p.Nodes)
	fmt.Fprintf(out, "a node             %8d replicas, %s/s\n", p.Each, bytes(p.Egress))
	fmt.Fprintf(out, "the leader         %8s %s/s besides, for the other nodes\n\n", "", bytes(p.Log))
	fmt.Fprintf(out, "a node is lost         computed   simulated: half, all    all to one node\n")
	for _, c := range []struct {
		name     string
		computed time.Duration
		bytes    float64
		work     time.Duration
	}{
		{"with what they missed", p.Resume, p.Tail, k.resume(p.Tail)},
		{"with snapshots", p.Restart, f.Map, k.snapshot(f)},
	} {
		spread, same := f.simulate(p, c.bytes, c.work, true, 1), f.simulate(p, c.bytes, c.work, false, 1)
		fmt.Fprintf(out, "%-21s  %7.2f s    %7.2f s, %7.2f s       %7.2f s\n", c.name, c.computed.Seconds(), spread.Half.Seconds(), spread.All.Seconds(), same.All.Seconds())
	}
}

// bytes prints a size in decimal units.
func bytes(n float64) string {
	for _, u := range []struct {
		size float64
		name string
	}{{1e9, "GB"}, {1e6, "MB"}, {1e3, "kB"}} {
		if n >= u.size {
			return fmt.Sprintf("%.3g %s", n/u.size, u.name)
		}
	}
	return fmt.Sprintf("%.0f bytes", n)
}
