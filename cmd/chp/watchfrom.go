package main

import (
	"context"
	"strconv"

	"clustermap/chp"
	"clustermap/internal/command"
	"clustermap/internal/jsonline"

	"github.com/spf13/cobra"
)

// watchFrom is where a watch begins, and what it shows beside the events.
type watchFrom struct {
	since                         string
	sequence                      int64
	noInitial, previous, bookmark bool
}

func (f *watchFrom) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.since, "since", "", "print what came after the sequence number `SEQ`, deletions among it, in place of all keys")
	flags.BoolVar(&f.noInitial, "no-initial", false, "print changes only")
	flags.BoolVar(&f.previous, "prev", false, "print the value before, too")
	flags.BoolVar(&f.bookmark, "bookmarks", false, "say from time to time up to which sequence number everything was printed")
}

// check returns an error if the flags are invalid.
func (f *watchFrom) check(cmd *cobra.Command) error {
	if !cmd.Flags().Changed("since") {
		return nil
	}
	var err error
	if f.sequence, err = strconv.ParseInt(f.since, 10, 64); err != nil || f.sequence <= 0 {
		return fail(exitUsage, "--since %q: must be a sequence number, as chp watch prints it", f.since)
	}
	return nil
}

// watch begins the watch: before the client is in sync, unless a server has to be asked.
func (f *watchFrom) watch(ctx context.Context, c *client) (*chp.Watch, error) {
	if f.sequence > 0 {
		if err := c.wait(ctx); err != nil {
			return nil, err
		}
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.connection.timeout)
		defer cancel()
	}
	w, err := c.WatchWith(ctx, chp.WatchOptions{Since: f.sequence, NoInitial: f.noInitial, Previous: f.previous, Bookmarks: f.bookmark})
	return w, refused(err)
}

// format returns a function that appends the line of an event with what is shown beside it.
func (f *watchFrom) format(line func([]byte, chp.Event) []byte, asJSON bool) func([]byte, chp.Event) []byte {
	if !f.previous {
		return line
	}
	return func(dst []byte, e chp.Event) []byte {
		dst = line(dst, e)
		if e.Previous == nil {
			return dst
		}
		if asJSON {
			dst = append(dst[:len(dst)-len("}\n")], ',')
			return append(jsonline.AppendField(dst, "prev", e.Previous), '}', '\n')
		}
		dst = append(dst[:len(dst)-1], " prev "...)
		return append(command.AppendPlain(dst, e.Previous, true), '\n')
	}
}
