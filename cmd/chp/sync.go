package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"clustermap/chp"
	"clustermap/cmd/chp/internal/mirror"
	"clustermap/internal/command"
	"clustermap/internal/visible"

	"github.com/spf13/cobra"
)

func newSync() *cobra.Command {
	var n connection
	var to string
	var once, remove, quiet bool
	maxFile, maxFiles := command.Bytes(chp.DefaultMaxValueSize), command.Number(10_000)
	cmd := &cobra.Command{
		Use:   "sync DIR PREFIX",
		Short: "Keep a directory and a subtree of the map equal",
		Long: `Keeps DIR and the keys that begin with PREFIX equal until it is interrupted: the file
DIR/a/b has the value of the key PREFIXa/b. PREFIX begins and ends with a slash. DIR is
created if it does not exist.

  --to both  changes of either side go to the other one. At the start what only one has
             goes to the other; where both differ, and whenever both sides change at
             the same time, the map's value wins
  --to dir   files become what the keys are
  --to map   keys become what the files are

With one direction, files or keys that only the other side has ever had are left alone;
with --delete they are deleted. With --once the command ends when both are equal.

Files are replaced atomically, by renaming, and keep their permissions. A key is only set
or deleted if it is still what the file was made from. An empty file stands for no value
and changes no key; symbolic links, and files that are larger than --max-file, are
left alone. A key whose name behind PREFIX is no local path, as with an empty part, . or
.., becomes no file: the command says so on standard error. If DIR itself is removed
or replaced, or the server comes back with a new and empty map, nothing is deleted.

A line on standard output names each change: written or removed a file, set or deleted a
key. When both are equal for the first time, a line with "in sync" is on standard error.

With --once the exit code is 1 if something could not be made equal.`,
		Example: `  chp sync /etc/myapp /config/myapp/ --to dir
  chp sync ./flags /flags/ --to map --once --delete`,
		Args: command.Args(2, 2),
	}
	flags := cmd.Flags()
	flags.StringVar(&to, "to", "both", "which side follows: both, dir, map")
	command.Complete(cmd, "to", "both", "dir", "map")
	flags.BoolVar(&once, "once", false, "end when both are equal")
	flags.BoolVar(&remove, "delete", false, "with one direction, delete also what only the other side has")
	flags.BoolVar(&quiet, "quiet", false, "do not print the changes")
	flags.Var(&maxFile, "max-file", "largest file, such as 1MiB; larger ones are left alone")
	flags.Var(&maxFiles, "max-files", "maximum number of files, and of keys; with more the command fails")
	n.register(cmd, 30*time.Second)
	cmd.RunE = command.Runs(func(ctx context.Context, cmd *cobra.Command, args []string) error {
		dir, prefix := args[0], args[1]
		switch {
		case to != "both" && to != "dir" && to != "map":
			return fail(exitUsage, "--to %q: must be both, dir or map", to)
		case remove && to == "both":
			return fail(exitUsage, "--delete needs --to dir or --to map: with both nothing is only one side's")
		case maxFile < 1 || maxFiles < 1:
			return fail(exitUsage, "--max-file and --max-files must be above 0")
		case len(prefix) < 3 || prefix[0] != '/' || !strings.HasSuffix(prefix, "/"):
			return fail(exitUsage, "%q is no prefix: it must begin and end with a slash, such as /config/", prefix)
		}
		if err := os.MkdirAll(dir, 0o777); err != nil {
			return fail(exitRefused, "%w", err)
		}
		c, err := n.open(ctx, chp.ClientOptions{Subtrees: []string{prefix}, KeepOnEmpty: true})
		if err != nil {
			return err
		}
		defer c.Close()
		complaints := 0
		err = mirror.Run(ctx, mirror.Options{
			Client: c.Client, Dir: dir, Prefix: prefix, ToDir: to != "map", ToMap: to != "dir", Delete: remove, Once: once,
			MaxFile: int64(maxFile), MaxFiles: int(maxFiles), Timeout: n.timeout,
			Changed: func(what, name string) {
				if !quiet {
					fmt.Fprintln(cmd.OutOrStdout(), what, visible.String(name))
				}
			},
			Complain: func(text string) {
				complaints++
				fmt.Fprintf(cmd.ErrOrStderr(), "chp: %s\n", visible.String(strings.ReplaceAll(text, "chp: ", "")))
			},
			Ready: func(files int) { fmt.Fprintf(cmd.ErrOrStderr(), "chp: in sync: %s\n", command.Count(files, "file")) },
		})
		var path *fs.PathError
		switch {
		case errors.As(err, &path):
			return fail(exitRefused, "%w", err)
		case err != nil:
			return refused(err)
		case ctx.Err() != nil && once:
			return ctx.Err()
		case !once: // interrupted, as it is meant to be
			return nil
		case complaints > 0:
			return command.Exit(exitRefused)
		}
		return nil
	})
	return cmd
}
