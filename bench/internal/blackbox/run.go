package blackbox

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"clustermap/internal/bench/figures"
	"clustermap/internal/bench/worker"
)

// task is the work of a process.
type task struct {
	Side    string // of a subscriber
	Spec    Spec
	Profile string // where to write a profile of the processor time
	Limit   time.Duration
}

// Main is the main function of a command that measures our side and those given.
func Main(others map[string]Side) {
	sides := map[string]Side{"ours": ours}
	for name, side := range others {
		sides[name] = side
	}
	worker.Main(map[string]worker.Role{
		"publisher": perform(func(ctx context.Context, t task, say func(any)) error { return publish(ctx, t.Spec, say) }),
		"subscriber": perform(func(ctx context.Context, t task, say func(any)) error {
			f, err := sides[t.Side](ctx, t.Spec)
			if err != nil {
				return fmt.Errorf("%s: %w", t.Side, err)
			}
			say(f)
			return nil
		}),
	})
	worker.Run("blackbox", func(ctx context.Context) error { return compare(ctx, sides) })
}

// perform returns the role that does a task.
func perform(f func(context.Context, task, func(any)) error) worker.Role {
	return worker.For(func(t task, say func(any)) error {
		ctx, cancel := context.WithTimeout(context.Background(), t.Limit)
		defer cancel()
		stop, err := worker.Profile(t.Profile)
		if err != nil {
			return err
		}
		return errors.Join(f(ctx, t, say), stop())
	})
}

// settings are the flags.
type settings struct {
	rounds              int
	count               int64
	shards, workers     []int
	pubCores, cores     string
	pin, filtered       bool
	channels            bool
	pubProfile, profile string
	limit               time.Duration
	sides               []string
}

func parse(sides map[string]Side) (s settings, err error) {
	flags := flag.NewFlagSet("blackbox", flag.ContinueOnError)
	var shards, workers string
	flags.IntVar(&s.rounds, "rounds", 5, "measurements of each side")
	flags.Int64Var(&s.count, "count", 30_000_000, "messages of each measurement; rounded up to whole cycles")
	flags.StringVar(&shards, "shards", "1", "numbers of shards, with commas")
	flags.StringVar(&workers, "workers", "0", "numbers of workers of each shard, with commas; 0: the shards do the work")
	flags.BoolVar(&s.channels, "channels", false, "the publisher has a socket for each shard, with that shard's topics")
	flags.BoolVar(&s.filtered, "filtered", false, "subscribe to topics also with one shard or with channels, not to everything")
	flags.BoolVar(&s.pin, "pin", false, "bind shards and workers of our side to cores")
	flags.StringVar(&s.cores, "cores", "", "cores of the subscriber's process, as taskset -c takes them")
	flags.StringVar(&s.pubCores, "pub-cores", "", "cores of the publisher's process")
	flags.StringVar(&s.profile, "profile", "", "write a profile of our subscriber to this file")
	flags.StringVar(&s.pubProfile, "pub-profile", "", "write a profile of the publisher to this file")
	flags.DurationVar(&s.limit, "limit", time.Minute, "the longest that a measurement may take")
	side := flags.String("side", "", "measure this side only")
	if err := flags.Parse(os.Args[1:]); err != nil {
		return s, err
	}
	if s.shards, err = numbers(shards, 1); err != nil {
		return s, err
	}
	if s.workers, err = numbers(workers, 0); err != nil {
		return s, err
	}
	if flags.NArg() > 0 || s.rounds < 1 || s.count < 1 {
		return s, errors.New("wrong arguments; see -h")
	}
	s.count = (s.count + cycle - 1) / cycle * cycle
	for name := range sides {
		if *side == "" || name == *side {
			s.sides = append(s.sides, name)
		}
	}
	if len(s.sides) == 0 {
		return s, fmt.Errorf("there is no side %q", *side)
	}
	slices.Sort(s.sides)
	return s, nil
}

// numbers reads numbers with commas between them.
func numbers(text string, least int) (all []int, err error) {
	for field := range strings.SplitSeq(text, ",") {
		var n int
		if _, err := fmt.Sscan(field, &n); err != nil || n < least || n > letters {
			return nil, fmt.Errorf("%q is not a number from %d to %d", field, least, letters)
		}
		all = append(all, n)
	}
	return all, nil
}

func compare(ctx context.Context, sides map[string]Side) error {
	s, err := parse(sides)
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "shards\tworkers\tside\tmsg/s\t(min..max)\tcores used\tns of processor a message\tratio of ours\t\n")
	for _, shards := range s.shards {
		for _, workers := range s.workers {
			spec := Spec{Count: s.count, Shards: shards, Workers: workers, Channels: s.channels, Filtered: s.filtered, Pin: s.pin}
			if err := s.row(ctx, spec, w); err != nil {
				return err
			}
		}
	}
	return w.Flush()
}

// row measures the sides in turn, each round in another order.
func (s *settings) row(ctx context.Context, spec Spec, w io.Writer) error {
	measured := map[string][]Figure{}
	for round := range s.rounds {
		for turn := range s.sides {
			name := s.sides[(round+turn)%len(s.sides)]
			f, err := s.measure(ctx, name, spec)
			if err != nil {
				return err
			}
			fmt.Fprintf(os.Stderr, "%d shards, %d workers, %s: %.2f M/s with %.2f cores\n",
				spec.Shards, spec.Workers, name, f.rate()/1e6, f.cores())
			measured[name] = append(measured[name], f)
		}
	}
	rates := map[string][]float64{}
	for name, all := range measured {
		for _, f := range all {
			rates[name] = append(rates[name], f.rate())
		}
	}
	for _, name := range s.sides {
		var cores, each []float64
		for _, f := range measured[name] {
			cores, each = append(cores, f.cores()), append(each, f.perMessage())
		}
		ratio := "-"
		if r := figures.Of(figures.Ratios(rates["ours"], rates[name])); r.Max > 0 && name != "ours" {
			ratio = fmt.Sprintf("%.2f (%.2f..%.2f)", r.Median, r.Min, r.Max)
		}
		r := figures.Of(rates[name])
		fmt.Fprintf(w, "%d\t%d\t%s\t%.2f M\t(%.2f..%.2f)\t%.2f\t%.0f\t%s\t\n", spec.Shards, spec.Workers, name,
			r.Median/1e6, r.Min/1e6, r.Max/1e6, figures.Median(cores), figures.Median(each), ratio)
	}
	return nil
}

// measure runs a publisher and one subscriber.
func (s *settings) measure(ctx context.Context, side string, spec Spec) (f Figure, err error) {
	t := task{Side: side, Spec: spec, Limit: s.limit, Profile: s.pubProfile}
	pub, err := worker.Start(ctx, "publisher", t, on(s.pubCores)...)
	if err != nil {
		return f, err
	}
	defer pub.Stop()
	if err := pub.Next(&t.Spec.Endpoints); err != nil {
		return f, err
	}
	if t.Profile = ""; side == "ours" {
		t.Profile = s.profile
	}
	sub, err := worker.Start(ctx, "subscriber", t, on(s.cores)...)
	if err != nil {
		return f, err
	}
	defer sub.Stop()
	if err := sub.Next(&f); err != nil {
		return f, err
	}
	if err := errors.Join(sub.Wait(), pub.Wait()); err != nil {
		return f, err
	}
	return f, f.check(spec.Count)
}

// on returns the command that runs another on some cores only, if these are given.
func on(cores string) []string {
	if cores == "" {
		return nil
	}
	return []string{"taskset", "-c", cores}
}
