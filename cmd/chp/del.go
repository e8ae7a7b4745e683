package main

import (
	"context"
	"fmt"
	"iter"
	"math"
	"slices"
	"strings"
	"time"

	"clustermap/chp"
	"clustermap/internal/command"
	"clustermap/internal/kvjson"

	"github.com/spf13/cobra"
)

// delFlags are the flags of del besides those of its connection.
type delFlags struct {
	connection
	prefix, all, yes, dry, asJSON bool
	only                          conditions
}

func newDel() *cobra.Command {
	var f delFlags
	cmd := &cobra.Command{
		Use:   "del [KEY...]",
		Short: "Delete keys, and print the sequence numbers of the updates",
		Long: `Deletes each KEY, waits until the server has published the updates, and prints their
sequence numbers, one per line. Keys that are not in the map are named on standard
error, and the exit code is 1; the others are deleted.

With --prefix it deletes all keys that begin with KEY, and prints their number. Exits
with 1 if there are none. Keys that others add meanwhile stay. With --all, and without
KEY, it deletes every key. An empty KEY, such as a variable that is not set, is refused
without --all, and so is a slash alone if all keys begin with it. On a terminal it asks before it deletes more than 1,000 keys, unless
--yes is given; elsewhere it does not ask. As for chp ls, any prefix will do: /lamp stands for /lamps too, and /lamp/ for
the keys below it only. chp watch and chp dump take a key, or a subtree, which ends
with a slash.

With --dry-run it prints the keys, one per line as chp ls does, and deletes nothing.

With --if-present, --if-seq or --if-value it deletes the one KEY only if that holds when
the server orders the update. Otherwise nothing changes, the exit code is 1, and the
sequence number of the key's last update is on standard error.

With --json each deleted key is an object with key (key_base64 if it is not UTF-8)
and seq, a string; with --prefix there is one object with deleted, the number of
keys. The object of a conflict is that of chp set.`,
		Example: `  chp del /lamp/1
  chp del /lamp/2 /lamp/3
  chp del /lock --if-value node1
  chp del --prefix /lamp/ --dry-run
  chp del --prefix /lamp/
  chp del --all --yes`,
		Args: func(cmd *cobra.Command, args []string) error {
			if f.all {
				return nil
			}
			return command.Args(1, math.MaxInt)(cmd, args)
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&f.prefix, "prefix", false, "delete all keys that begin with KEY")
	flags.BoolVar(&f.all, "all", false, "delete every key of the map")
	flags.BoolVar(&f.yes, "yes", false, "do not ask before many keys are deleted")
	flags.BoolVar(&f.dry, "dry-run", false, "print the keys, and delete nothing")
	flags.BoolVar(&f.asJSON, "json", false, "print JSON objects, one per line")
	f.only.register(cmd, false)
	f.register(cmd, 5*time.Second)
	f.registerModel(cmd)
	f.completeKeys(cmd, -1)
	cmd.RunE = command.Runs(func(ctx context.Context, cmd *cobra.Command, args []string) error {
		if f.model > 0 && f.model < 5 {
			return fail(exitRefused, "--server-model %d: Clone models 1 to 4 have no deletions", f.model)
		}
		if f.prefix && len(args) > 1 {
			return fail(exitUsage, "--prefix is for one KEY, not %d", len(args))
		}
		if f.all && len(args) > 0 && !(f.prefix && nameless(args[0])) {
			return fail(exitUsage, "--all is for every key, without KEY")
		}
		if only := f.only.options(); len(only) > 0 {
			if f.prefix || f.all || f.dry || len(args) != 1 {
				return fail(exitUsage, "conditions are for one KEY, without --prefix, --all and --dry-run")
			}
			return f.deleteIf(ctx, cmd, args[0], only)
		}
		if f.all && len(args) == 0 {
			return f.deletePrefix(ctx, cmd, "")
		}
		if f.prefix && args[0] == "" && !f.all && !f.dry {
			return fail(exitUsage, "every key begins with \"\": add --all if the whole map is meant")
		}
		if f.prefix {
			return f.deletePrefix(ctx, cmd, args[0])
		}
		return f.deleteKeys(ctx, cmd, args)
	})
	return cmd
}

// nameless reports whether a prefix has no name in it: it is what is left of one when a
// variable is not set.
func nameless(prefix string) bool { return strings.Trim(prefix, "/") == "" }

// deleteKeys deletes keys one after the other.
func (f *delFlags) deleteKeys(ctx context.Context, cmd *cobra.Command, keys []string) error {
	c, err := f.openKeys(ctx, f.open, keys...)
	if err != nil {
		return err
	}
	defer c.Close()
	var found []chp.Entry
	var missing []string
	done := map[string]bool{}
	for _, key := range keys {
		if done[key] {
			continue
		}
		done[key] = true
		if e, presence := c.Lookup(key); presence == chp.PresenceFound {
			found = append(found, e)
		} else {
			missing = append(missing, fmt.Sprintf("%q", key))
		}
	}
	if f.dry {
		_, err = f.list(ctx, cmd, slices.Values(found))
	} else {
		err = f.deleteFound(ctx, cmd, c, found)
	}
	switch {
	case err != nil:
		return err
	case len(missing) == 1:
		return fail(exitRefused, "%s is not in the map of %s", missing[0], c.Server())
	case len(missing) > 1:
		return fail(exitRefused, "%s are not in the map of %s", strings.Join(missing, ", "), c.Server())
	}
	return nil
}

// deleteIf deletes a key under conditions.
func (f *delFlags) deleteIf(ctx context.Context, cmd *cobra.Command, key string, only []chp.IfOption) error {
	c, err := f.openKeys(ctx, f.open, key)
	if err != nil {
		return err
	}
	defer c.Close()
	limited, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	sequence, err := c.DeleteIf(limited, key, append(only, chp.WithConflictValue())...)
	if err != nil {
		return c.judged(cmd, err, f.asJSON)
	}
	return printSequence(cmd.OutOrStdout(), key, sequence, f.asJSON)
}

// deleteFound deletes keys and prints the sequence numbers. --timeout limits the wait for
// each.
func (f *delFlags) deleteFound(ctx context.Context, cmd *cobra.Command, c *client, found []chp.Entry) error {
	for _, e := range found {
		key := string(e.Key)
		limited, cancel := context.WithTimeout(ctx, f.timeout)
		sequence, err := c.DeleteSync(limited, key)
		cancel()
		if err == nil {
			err = printSequence(cmd.OutOrStdout(), key, sequence, f.asJSON)
		}
		if err != nil {
			return c.confirm(err)
		}
	}
	return nil
}

// deletePart is the number of keys that deletePrefix deletes at once.
const deletePart = 4096

// deletePrefix deletes all keys with a prefix and prints their number. --timeout limits the
// wait for each part.
func (f *delFlags) deletePrefix(ctx context.Context, cmd *cobra.Command, prefix string) error {
	c, err := f.openPrefix(ctx, prefix)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := f.ask(ctx, cmd, c, prefix); err != nil {
		return err
	}
	count := 0
	if f.dry {
		count, err = f.list(ctx, cmd, c.Sorted(prefix))
	} else {
		count, err = f.deleteAll(ctx, c, prefix)
	}
	switch {
	case err != nil:
		return err
	case count == 0:
		return noKeyBegins(c, prefix)
	case f.dry:
		return nil
	case f.asJSON:
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "{\"deleted\":%d}\n", count)
	default:
		_, err = fmt.Fprintln(cmd.OutOrStdout(), count)
	}
	return err
}

// manyKeys is the number of keys above which del asks.
const manyKeys = 1000

// ask returns an error if the user does not want to delete so many keys, or has not said
// that the whole map is meant.
func (f *delFlags) ask(ctx context.Context, cmd *cobra.Command, c *client, prefix string) error {
	count := 0
	for range c.Prefix(prefix) {
		count++
	}
	if nameless(prefix) && count > 0 && count == c.Len() && !f.all && !f.dry {
		return fail(exitUsage, "every key of the map begins with %q: add --all if the whole map is meant", prefix)
	}
	if count <= manyKeys || f.yes || f.dry {
		return nil
	}
	what := fmt.Sprintf("delete %d keys that begin with %q from", count, prefix)
	if prefix == "" {
		what = fmt.Sprintf("delete all %d keys of", count)
	}
	yes, err := command.Ask(ctx, cmd, what+" the map of "+c.Server()+"?")
	if err == nil && !yes {
		err = fail(exitRefused, "nothing was deleted")
	}
	return err
}

// deleteAll deletes the keys with a prefix in parts, and returns their number.
func (f *delFlags) deleteAll(ctx context.Context, c *client, prefix string) (count int, err error) {
	var part chp.Batch
	send := func() error {
		ctx, cancel := context.WithTimeout(ctx, f.timeout)
		defer cancel()
		err := c.Apply(ctx, &part)
		if err == nil {
			err = c.Flush(ctx)
		}
		count += part.Len()
		part.Reset()
		return c.confirm(err)
	}
	for e := range c.Sorted(prefix) {
		part.Delete(string(e.Key))
		if part.Len() < deletePart {
			continue
		}
		if err := send(); err != nil {
			return count, err
		}
	}
	return count, send()
}

// list prints keys as ls does, and returns their number.
func (f *delFlags) list(ctx context.Context, cmd *cobra.Command, entries iter.Seq[chp.Entry]) (int, error) {
	format := appendKey
	if f.asJSON {
		format = kvjson.AppendKey
	}
	return printEntries(ctx, cmd.OutOrStdout(), "", entries, format)
}
