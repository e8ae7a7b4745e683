package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"clustermap/internal/command"
	"clustermap/patterns/lastvalue"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
)

func newCache() *cobra.Command {
	publishers, subscribers := side{}, side{bind: true}
	curve := command.DeviceKeys{Keys: curve}
	o := lastvalue.Options{MaxTopics: lastvalue.DefaultMaxTopics, MaxBytes: lastvalue.DefaultMaxBytes}
	var every time.Duration
	var asJSON bool
	var http httpFlags
	cmd := &cobra.Command{
		Use:   "cache",
		Short: "Give new subscribers the last value of each topic",
		Long: `Forwards everything that publishers send, and keeps the last message of each topic,
which is its first frame. A new subscriber, and no other, gets the last message of every
topic that begins with its prefix. It misses no message between these and the live ones. A
subscriber that reads too slowly is disconnected, and gets the last messages when it
connects again.

` + attachHelp + `
Without a prefix, --publisher is connected and --bind is bound.

With --stats it prints a line of statistics on standard output at each interval: topics
and bytes stored, messages from publishers, topics removed because of --max-topics or
--max-bytes (evicted) or --expiry (expired), messages too large to store, connected
subscribers, subscriptions, and last values sent (replayed). Counts are since the start.`,
		Example: `  zdev cache --publisher tcp://10.0.0.7:5557 --bind tcp://*:5558
  zdev cache --publisher bind:tcp://*:5557 --bind tcp://*:5558 \
    --expiry 1h --stats 10s`,
	}
	flags := cmd.Flags()
	publishers.register(flags, "publisher", "`endpoint` of publishers")
	subscribers.register(flags, "bind", "`endpoint` for subscribers")
	flags.Var((*command.Number)(&o.MaxTopics), "max-topics", "maximum number of topics; beyond it the one without an update for longest is removed")
	flags.Var((*command.Bytes)(&o.MaxBytes), "max-bytes", "maximum size of the stored messages, including about 120 bytes per topic")
	flags.DurationVar(&o.Expiry, "expiry", 0, "age at which a message is removed; 0 means never")
	flags.DurationVar(&every, "stats", 0, "interval between two lines of statistics; 0 means none")
	flags.BoolVar(&asJSON, "json", false, "print statistics as JSON objects, one per line")
	curve.Register(flags)
	http.register(flags)
	cmd.RunE = command.Runs(func(ctx context.Context, cmd *cobra.Command, _ []string) (err error) {
		switch {
		case o.MaxTopics < 1 || o.MaxBytes < 1:
			return command.Fail(command.ExitUsage, "--max-topics and --max-bytes must be positive")
		case o.Expiry < 0 || every < 0:
			return command.Fail(command.ExitUsage, "--expiry and --stats must not be negative")
		case asJSON && every == 0:
			return command.Fail(command.ExitUsage, "--json needs --stats: nothing else is printed")
		}
		bound, connected, err := curve.Security()
		if err != nil {
			return err
		}
		if o.Publisher.Security, err = publishers.security(bound, connected); err != nil {
			return err
		}
		if o.Subscribers.Security, err = subscribers.security(bound, connected); err != nil {
			return err
		}
		o.Publisher.Monitor, o.Subscribers.Monitor = publishers.monitor(ctx, cmd), subscribers.monitor(ctx, cmd)
		cache, err := lastvalue.New(o)
		if wrong, ok := errors.AsType[*lastvalue.OptionError](err); ok && wrong.Field == "MaxTopics" {
			return command.Fail(command.ExitUsage, "--max-topics %d %s", o.MaxTopics, wrong.Reason)
		}
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, cache.Close()) }()
		if err := subscribers.attachTo(ctx, cache.Bind, cache.Connect); err != nil {
			return err
		}
		if err := publishers.attachTo(ctx, cache.BindPublisher, cache.ConnectPublisher); err != nil {
			return err
		}
		side, err := http.open(ctx, cmd, cacheMetrics(cache)...)
		if err != nil {
			return err
		}
		defer side.Close()
		command.Ready(cmd, bound, publishers.String()+", "+subscribers.String())
		if every == 0 {
			<-ctx.Done()
			return nil
		}
		return printCacheStats(ctx, cmd.OutOrStdout(), cache, every, asJSON)
	})
	return cmd
}

// cacheMetrics returns the metrics of a cache for --http.
func cacheMetrics(c *lastvalue.Cache) []prometheus.Collector {
	return []prometheus.Collector{
		counted("zdev_cache_messages_total", "Messages of publishers.", func() uint64 { return c.Stats().Messages }),
		counted("zdev_cache_too_large_total", "Messages too large to be kept.", func() uint64 { return c.Stats().TooLarge }),
		counted("zdev_cache_evicted_total", "Topics removed because the cache was full.", func() uint64 { return c.Stats().Evicted }),
		counted("zdev_cache_expired_total", "Topics removed because of their age.", func() uint64 { return c.Stats().Expired }),
		counted("zdev_cache_subscriptions_total", "Subscriptions accepted.", func() uint64 { return c.Stats().Subscriptions }),
		counted("zdev_cache_replayed_total", "Last values sent to new subscribers.", func() uint64 { return c.Stats().Replayed }),
		measured("zdev_cache_topics", "Topics with a last value.", func() int { return c.Stats().Topics }),
		measured("zdev_cache_bytes", "Bytes of what is kept.", func() int { return c.Stats().Bytes }),
		measured("zdev_cache_subscribers", "Connections of subscribers.", func() int { return len(c.Subscribers()) }),
		measured("zdev_cache_publishers", "Connections of publishers.", func() int { return len(c.Publishers()) }),
	}
}

// cacheStats is a line of --stats.
type cacheStats struct {
	Topics        int    `json:"topics"`
	Bytes         int    `json:"bytes"`
	Messages      uint64 `json:"messages"`
	Evicted       uint64 `json:"evicted"`
	Expired       uint64 `json:"expired"`
	TooLarge      uint64 `json:"too_large"`
	Subscribers   int    `json:"subscribers"`
	Subscriptions uint64 `json:"subscriptions"`
	Replayed      uint64 `json:"replayed"`
}

// printCacheStats prints statistics until the context ends.
func printCacheStats(ctx context.Context, w io.Writer, cache *lastvalue.Cache, every time.Duration, asJSON bool) error {
	ctx, done := command.UntilHangup(ctx, w)
	defer done()
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	out := bufio.NewWriter(w)
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
		s := cache.Stats()
		line := cacheStats{
			Topics: s.Topics, Bytes: s.Bytes, Messages: s.Messages, Evicted: s.Evicted, Expired: s.Expired, TooLarge: s.TooLarge,
			Subscribers: len(cache.Subscribers()), Subscriptions: s.Subscriptions, Replayed: s.Replayed,
		}
		if asJSON {
			if err := json.NewEncoder(out).Encode(line); err != nil {
				return err
			}
		} else {
			fmt.Fprintf(out, "%d topics, %d bytes, %d messages, %d evicted, %d expired, %d too large, %d subscribers, %d subscriptions, %d replayed\n",
				line.Topics, line.Bytes, line.Messages, line.Evicted, line.Expired, line.TooLarge, line.Subscribers, line.Subscriptions, line.Replayed)
		}
		if err := out.Flush(); err != nil {
			return err
		}
	}
}
