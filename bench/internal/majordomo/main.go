package majordomo

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"clustermap/internal/bench/figures"
	"clustermap/internal/bench/worker"
	"clustermap/patterns/majordomo"
)

// Side runs a broker until the process is killed. It calls ready with the endpoint.
type Side func(ready func(endpoint string)) error

// ours is the broker of patterns/majordomo.
func ours(ready func(string)) error {
	b, err := majordomo.NewBroker(majordomo.BrokerOptions{})
	if err != nil {
		return err
	}
	endpoint, err := b.Bind(context.Background(), "tcp://127.0.0.1:*")
	if err != nil {
		return err
	}
	ready(endpoint)
	select {}
}

// Main is the main function of a command that measures our broker and, in turn with it,
// others. It runs itself again for the broker's process and for that of the load.
func Main(others map[string]Side) {
	sides := map[string]Side{"clustermap": ours}
	names := []string{"clustermap"}
	for name, side := range others {
		sides[name] = side
		names = append(names, name)
	}
	worker.Main(map[string]worker.Role{
		"broker": worker.For(func(side string, say func(any)) error {
			return sides[side](func(endpoint string) { say(endpoint) })
		}),
		"load": worker.For(func(s spec, say func(any)) error {
			ctx, cancel := context.WithTimeout(context.Background(), s.Warm+s.Time+time.Minute)
			defer cancel()
			f, err := load(ctx, s)
			if err == nil {
				say(f)
			}
			return err
		}),
	})
	var (
		rounds  = flag.Int("rounds", 3, "how often to measure each; the median counts")
		workers = flag.String("workers", "1,10,100", "numbers of workers")
		clients = flag.Int("clients", 4, "connections of clients")
		window  = flag.Int("window", 250, "requests of each client that are on their way; a broker on libzmq loses replies from 1,000 on")
		sizes   = flag.String("size", "64", "bytes of a body, at least 8; several numbers with commas between")
		warm    = flag.Duration("warm", time.Second, "time before each measurement")
		length  = flag.Duration("time", 3*time.Second, "time of each measurement")
		asJSON  = flag.Bool("json", false, "print JSON instead of a table")
	)
	flag.Parse()
	s := spec{Clients: *clients, Window: *window, Warm: *warm, Time: *length}
	worker.Run("majordomo", func(ctx context.Context) error {
		return compare(ctx, names, *sizes, *workers, *rounds, s, *asJSON)
	})
}

// Result holds the figures of one broker with bodies of a size and a number of workers, of
// each round; ours comes first.
type Result struct {
	Size      int       `json:"size"` // of a body, in bytes
	Workers   int       `json:"workers"`
	Broker    string    `json:"broker"`
	Rates     []float64 `json:"rates"`        // requests a second
	Processor []float64 `json:"processor_us"` // of the broker's process, for each request
}

// compare measures all sides in turn and prints a table, or JSON.
func compare(ctx context.Context, names []string, sizes, workers string, rounds int, s spec, asJSON bool) error {
	bodies, err := numbers(sizes, 8)
	if err != nil {
		return err
	}
	counts, err := numbers(workers, 1)
	if err != nil {
		return err
	}
	var results []Result
	if !asJSON {
		fmt.Printf("%d clients with %d requests each on their way, median of %d\n", s.Clients, s.Window, rounds)
		fmt.Printf("%-8s %-8s %-12s %12s %16s %8s\n", "bytes", "workers", "broker", "requests/s", "processor us", "ratio")
	}
	for _, s.Size = range bodies {
		for _, s.Workers = range counts {
			sides, err := inTurn(ctx, names, rounds, s)
			if err != nil {
				return err
			}
			results = append(results, sides...)
			if asJSON {
				continue
			}
			for _, r := range sides {
				fmt.Printf("%-8d %-8d %-12s %12.0f %16.2f %8.2f\n", r.Size, r.Workers, r.Broker, figures.Median(r.Rates), figures.Median(r.Processor), figures.Median(figures.Ratios(sides[0].Rates, r.Rates)))
			}
		}
	}
	if asJSON {
		return json.NewEncoder(os.Stdout).Encode(results)
	}
	return nil
}

// numbers returns the numbers of a list with commas.
func numbers(list string, least int) (all []int, err error) {
	for text := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < least {
			return nil, fmt.Errorf("%q is no number of at least %d", text, least)
		}
		all = append(all, n)
	}
	return all, nil
}

// inTurn measures all sides in turn, in every second round in the other order.
func inTurn(ctx context.Context, names []string, rounds int, s spec) ([]Result, error) {
	sides := make([]Result, len(names))
	for round := range rounds {
		for turn := range names {
			i := turn
			if round%2 == 1 {
				i = len(names) - 1 - turn
			}
			f, err := one(ctx, names[i], s)
			if err == nil && f.Requests == 0 {
				err = errors.New("no request was answered in time")
			}
			if err != nil {
				return nil, fmt.Errorf("%s, %d workers, bodies of %d bytes: %w", names[i], s.Workers, s.Size, err)
			}
			// The broker's process also ran while it was warm.
			share := f.Elapsed.Seconds() / (f.Elapsed + s.Warm).Seconds()
			r := &sides[i]
			r.Size, r.Workers, r.Broker = s.Size, s.Workers, names[i]
			r.Rates = append(r.Rates, float64(f.Requests)/f.Elapsed.Seconds())
			r.Processor = append(r.Processor, float64(f.Processor.Microseconds())*share/float64(f.Requests))
		}
	}
	return sides, nil
}

// one measures one side once.
func one(ctx context.Context, name string, s spec) (f figure, err error) {
	broker, err := worker.Start(ctx, "broker", name)
	if err != nil {
		return f, err
	}
	defer func() {
		broker.Stop()
		f.Processor = broker.Processor()
	}()
	if err := broker.Next(&s.Endpoint); err != nil {
		return f, err
	}
	load, err := worker.Start(ctx, "load", s)
	if err != nil {
		return f, err
	}
	defer load.Stop()
	err = load.Next(&f)
	return f, err
}
