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
	"clustermap/chp/commit"
	"clustermap/chp/durable"
	"clustermap/internal/command"

	"github.com/spf13/cobra"
)

func newBackup() *cobra.Command {
	var n connection
	cmd := &cobra.Command{
		Use:   "backup [DIR] FILE",
		Short: "Save a server's map to a file",
		Long: `Saves a whole map to FILE, which chp restore makes the data of a server from.

With DIR, a directory of chp serve --data, it copies what is there: the last checkpoint
and the log behind it. Nothing is missing then: sequences, times to live, what the
server knows of its clients. The server may run meanwhile; the file holds what was
written when the command began, all of it flushed to the disk.

Without DIR it asks a server (--server) for a snapshot. The file holds the keys and
values, with their sequences, UUIDs and properties, and the times to live that are
left; what the server knows of its clients is not in it.

The file is complete or it is not there: it grows under another name beside FILE,
which ends in .tmp, and replaces what has the name FILE when all of it is on the disk.
A checksum runs through it; chp fsck FILE checks it.`,
		Example: `  chp backup /var/lib/chp map.backup
  chp backup --server tcp://10.0.0.1:5556 map.backup`,
		Args: cobra.RangeArgs(1, 2),
	}
	n.register(cmd, 30*time.Second)
	n.registerModel(cmd)
	cmd.RunE = command.Runs(func(ctx context.Context, cmd *cobra.Command, args []string) error {
		file := args[len(args)-1]
		if len(args) == 2 {
			if len(n.flags) > 0 {
				return fail(exitUsage, "name a directory or a --server, not both")
			}
			info, err := durable.Backup(ctx, args[0], file)
			if err != nil {
				return logError(ctx, err)
			}
			return report(cmd, "saved %s up to sequence %d from %s to %s", updates(info.Records), info.Sequence, args[0], file)
		}
		servers, err := n.servers()
		if err != nil {
			return err
		}
		if err := n.needSnapshots(); err != nil {
			return err
		}
		c, err := n.open(ctx, chp.ClientOptions{Servers: servers})
		if err != nil {
			return err
		}
		defer c.Close()
		var to *durable.BackupWriter
		err = c.Backup(ctx, func(sequence int64) (_ commit.Checkpoint, err error) {
			to, err = durable.NewBackup(file, 0, uint64(sequence))
			return to, err
		})
		if err != nil {
			return logError(ctx, err)
		}
		info := to.Info()
		return report(cmd, "saved %s at sequence %d from %s to %s", keys(int(info.Records)), info.Sequence, c.Server(), file)
	})
	return cmd
}

func newRestore() *cobra.Command {
	return &cobra.Command{
		Use:   "restore FILE DIR",
		Short: "Make the data of a server from a backup",
		Long: `Makes DIR a directory for chp serve --data, with the map that chp backup has saved to
FILE. DIR is created if it does not exist; one that holds data of a server is left
alone. FILE is checked on the way: if it is damaged, nothing is restored.

When the command is interrupted, DIR holds no data, and the command can be repeated.`,
		Example: `  chp restore map.backup /var/lib/chp
  chp serve --data /var/lib/chp`,
		Args: cobra.ExactArgs(2),
		RunE: command.Runs(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			file, dir := args[0], args[1]
			if _, err := os.Stat(file); err != nil {
				return fail(exitRefused, "%w", err)
			}
			info, err := durable.Restore(ctx, file, dir)
			if errors.Is(err, fs.ErrExist) {
				return fail(exitRefused, "%s; choose another directory", logText(err))
			}
			if err != nil {
				return logError(ctx, err)
			}
			return report(cmd, "restored %s up to sequence %d from %s to %s", updates(info.Records), info.Sequence, file, dir)
		}),
	}
}

// report says on standard error what was done.
func report(cmd *cobra.Command, format string, a ...any) error {
	_, err := fmt.Fprintf(cmd.ErrOrStderr(), "chp: "+format+"\n", a...)
	return err
}

// updates is a number of updates in words.
func updates(n uint64) string {
	if n == 1 {
		return "1 update"
	}
	return fmt.Sprintf("%d updates", n)
}

// logError gives an error of the log the exit code of a refusal, unless the command
// was interrupted.
func logError(ctx context.Context, err error) error {
	if coded := (*command.Error)(nil); errors.As(err, &coded) || ctx.Err() != nil {
		return err
	}
	return fail(exitRefused, "%s", logText(err))
}

// logText is the text of an error of the log without the prefix of the errors of
// package commit, which stands in the middle there.
func logText(err error) string {
	return strings.TrimPrefix(strings.ReplaceAll(plain(err), ": log: ", ": "), "log: ")
}
