// Command report runs all measurements in turn, stores their results in a folder, prints
// the medians and ratios, and draws plots of them as SVG into the same folder.
//
//	cd bench/peers && go run ./cmd/report --to /tmp/results
//	cd bench/peers && go run ./cmd/report --to /tmp/results --only '^kv' --rounds 9
//	cd bench/peers && go run ./cmd/report --from /tmp/results
//
// The machine should have nothing else to do. The sockets take three quarters of an hour with
// five rounds, as a case takes two seconds a round; everything takes hours. --only runs some of the
// measurements and leaves the results of the others as they are. --from measures nothing:
// it prints and draws the results in the folder. --quick is to see whether everything
// works; its figures mean nothing, so it replaces no others.
//
// origins.json has the date and the machine of each measurement. One that fails or is
// interrupted does not replace earlier results: its own are in a file that ends in
// .incomplete.
//
// Results of commands are JSON files, those of go test text files that benchstat
// reads.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"

	"clustermap/bench/peers/internal/report"
	"clustermap/internal/bench/worker"
)

func main() {
	worker.Run("report", func(ctx context.Context) error { return run(ctx, os.Args[1:], os.Stdout, os.Stderr) })
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("report", flag.ContinueOnError)
	flags.SetOutput(stderr)
	to := flags.String("to", "", "measure, and store everything in this `folder`")
	from := flags.String("from", "", "do not measure: print and draw the results in this `folder`")
	rounds := flags.Int("rounds", 5, "rounds of each measurement")
	only := flags.String("only", "", "measure only what matches this regular expression, of: "+strings.Join(report.Steps(), ", "))
	quick := flags.Bool("quick", false, "measure as briefly as possible, to see whether it works; it still takes minutes")
	if err := flags.Parse(args); err != nil {
		return err
	}
	switch {
	case flags.NArg() > 0:
		return fmt.Errorf("what is %q?", flags.Arg(0))
	case *to == "" && *from == "":
		return errors.New("either --to or --from is needed")
	case *to != "" && *from != "":
		return errors.New("--to and --from exclude each other")
	case *from != "" && *only != "":
		return errors.New("--only is for --to: --from shows all results of the folder")
	case *rounds < 1:
		return errors.New("--rounds must be positive")
	}
	wanted, err := regexp.Compile(*only)
	if err != nil {
		return err
	}
	folder := *from
	var failed error
	if *to != "" {
		folder = *to
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return err
		}
		m := report.Measuring{Folder: folder, Rounds: *rounds, Only: wanted, Quick: *quick, Log: stderr}
		failed = m.Run(ctx)
	}
	results, err := report.Load(folder)
	if failed != nil && (err != nil || len(results.Origins) == 0) {
		return failed // more useful than that there are no results
	}
	if err != nil {
		return err
	}
	if err := results.Print(stdout); err != nil {
		return errors.Join(failed, err)
	}
	paths, err := results.WriteCharts(folder)
	for _, path := range paths {
		fmt.Fprintln(stdout, path)
	}
	return errors.Join(failed, err)
}
