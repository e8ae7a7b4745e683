// Command compare measures clustermap's sockets beside another library's, both
// in turn in one run, and prints the ratios.
//
//	cd bench/peers && go run ./cmd/compare --rounds 5
//	cd bench/peers && go run ./cmd/compare --cases 'push-pull/tcp/(16|64)$' --peer go-zeromq
//
// Each round of a case measures both sides, one after the other, and the next
// round in the other order. Either end is a process of its own, but for inproc.
// Only messages that have arrived count. libzmq is called in loops in C, message by
// message; our sender calls Send for each message too (but see --batch), and our receiver
// takes batches, with RecvBatch, or in the cases that end in recv or recvinto single messages,
// with Recv or RecvInto. REQ and REP send and receive single messages. All sockets have default options,
// except that publishers wait for their subscribers instead of dropping, and that libzmq's
// queues have 16 messages where these are larger than 1 MiB.
//
// A row names the calls of both sides. It has the medians of the rounds, and the median, the least and the greatest of their
// ratios, ours to theirs: more is better for msg/s, and less for us (microseconds). A case
// that a library lacks has the reason instead.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"text/tabwriter"
	"time"

	"clustermap/bench/peers/internal/results"
	"clustermap/internal/bench/figures"
	"clustermap/internal/bench/worker"
)

func main() {
	worker.Main(roles)
	worker.Run("compare", func(ctx context.Context) error { return run(ctx, os.Args[1:], os.Stdout, os.Stderr) })
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("compare", flag.ContinueOnError)
	flags.SetOutput(stderr)
	rounds := flags.Int("rounds", 5, "paired measurements of each case")
	choice := flags.String("cases", "", "only the cases whose name matches this regular expression; the calls are in the table: .../recv is Recv, .../recvinto RecvInto, and without either push-pull is RecvBatch, req-rep Recv")
	list := flags.Bool("list", false, "print the names of the cases and end")
	asJSON := flags.Bool("json", false, "print JSON instead of a table")
	peer := flags.String("peer", string(libzmq), "what to compare with: libzmq, pebbe or go-zeromq")
	d := flags.Duration("time", time.Second, "how long to count in each measurement")
	warm := flags.Duration("warm", 300*time.Millisecond, "how long to let it run before")
	batch := flags.Int("batch", 0, "how many messages our PUSH hands over in one call, SendBatch; 0: one by one, with Send")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("what is %q?", flags.Arg(0))
	}
	if *rounds < 1 || *d <= 0 || *warm < 0 || *batch < 0 {
		return errors.New("--rounds and --time must be positive, --warm and --batch not negative")
	}
	them := library(*peer)
	if _, ok := programs[them]; !ok || them == ours {
		return fmt.Errorf("there is no library %q to compare with", *peer)
	}
	wanted, err := regexp.Compile(*choice)
	if err != nil {
		return err
	}
	all := slices.DeleteFunc(tests(them), func(t test) bool { return !wanted.MatchString(t.name) })
	if len(all) == 0 {
		return fmt.Errorf("no case matches %q", *choice)
	}
	if *list {
		for _, t := range all {
			fmt.Fprintln(stdout, t.name)
		}
		return nil
	}
	var rows []results.Sockets
	for i := range all {
		t := &all[i]
		fmt.Fprintf(stderr, "%s\n", t.name)
		r := compare(ctx, t, them, *rounds, manner{*warm, *d, *batch})
		if ctx.Err() != nil {
			return ctx.Err()
		}
		rows = append(rows, r)
	}
	if *asJSON {
		e := json.NewEncoder(stdout)
		e.SetIndent("", "  ")
		err = e.Encode(rows)
	} else {
		err = table(stdout, rows, them)
	}
	for _, r := range rows {
		// A feature that a library lacks is no failure of the measurement.
		if r.Error != "" && r.Unit != "" {
			err = errors.Join(err, fmt.Errorf("%s: %s", r.Case, r.Error))
		}
	}
	return err
}

// compare measures one case.
func compare(ctx context.Context, t *test, them library, rounds int, how manner) results.Sockets {
	r := results.Sockets{
		Case: t.name, Pattern: string(t.pattern), Transport: t.transport, Size: t.size, Subscribers: t.peers, Topic: t.topic, Curve: t.curve, Receive: string(t.receive),
		First: string(t.first), Second: string(t.second), Peer: string(them), Batch: how.batch,
		Unit: t.unit(),
	}
	for i := range rounds {
		var pair [2]float64
		for turn := range 2 {
			side := (i + turn) % 2
			first, second := t.first, t.second
			if side == 1 {
				first, second = them, them
			}
			limit, cancel := context.WithTimeout(ctx, how.warm+how.time+patience)
			f, err := measure(limit, t, first, second, how)
			cancel()
			if err != nil {
				r.Error = err.Error()
				if errors.Is(err, worker.ErrMissing) {
					r.Unit = ""
				}
				return r
			}
			pair[side] = f.value(t)
		}
		r.AllOurs, r.AllTheirs = append(r.AllOurs, pair[0]), append(r.AllTheirs, pair[1])
	}
	r.Ours, r.Theirs, r.Ratios = figures.Median(r.AllOurs), figures.Median(r.AllTheirs), figures.Ratios(r.AllOurs, r.AllTheirs)
	ratio := figures.Of(r.Ratios)
	r.Ratio, r.Min, r.Max = ratio.Median, ratio.Min, ratio.Max
	return r
}

// patience is how much longer than asked for a measurement may take, to start
// and to connect.
const patience = time.Minute

func table(out io.Writer, rows []results.Sockets, them library) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "case\tour calls\ttheirs\tours\t%s\tunit\tratio\t(min..max)\t\n", them)
	for _, r := range rows {
		ours, theirs := r.Calls()
		if r.Error != "" {
			fmt.Fprintf(w, "%s\t%s\t%s\t-\t-\t%s\t-\t%s\t\n", r.Case, ours, theirs, cmp.Or(r.Unit, "-"), r.Error)
			continue
		}
		form := "%.0f"
		if r.Unit == "us" {
			form = "%.1f"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t"+form+"\t"+form+"\t%s\t%.2f\t(%.2f..%.2f)\t\n",
			r.Case, ours, theirs, r.Ours, r.Theirs, r.Unit, r.Ratio, r.Min, r.Max)
	}
	return w.Flush()
}
