package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
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
		Long: `Saves a whole map to FILE, from which chp restore restores the data of a server.

With DIR, a directory of chp serve --data, it copies all data: the last checkpoint and
the log after it, with sequences, times to live and the state of the server's clients.
The server can run at the same time; the file has everything that was written when
the command began, flushed to disk.

Without DIR it asks a server (--server) for a snapshot. The file then has the keys and
values, with their sequences, UUIDs and properties, and the remaining times to live,
but not the state of the server's clients.

If FILE exists, it is replaced, and the command says so. It is replaced atomically and
only by a whole backup, which is written to a file next to it whose name
ends in .tmp, and renamed when all of it is on disk. A symbolic link stays: the
file that it leads to is replaced. A backup has a checksum, which chp fsck FILE
verifies.`,
		Example: `  chp backup /var/lib/chp map.backup
  chp backup --server tcp://10.0.0.1:5556 map.backup`,
		Args: command.Args(1, 2),
	}
	n.register(cmd, 30*time.Second)
	n.registerModel(cmd)
	cmd.RunE = command.Runs(func(ctx context.Context, cmd *cobra.Command, args []string) error {
		file := args[len(args)-1]
		if len(args) == 2 {
			if len(n.flags) > 0 {
				return fail(exitUsage, "give a directory or --server, not both")
			}
			replaced := replaces(file)
			bar := newProgress(cmd, "saving", -1)
			info, err := durable.Backup(ctx, args[0], file, bar.add)
			bar.finish()
			if err != nil {
				return backupError(ctx, file, err)
			}
			return report(cmd, "saved %s up to sequence %d from %s to %s%s", command.Count(info.Records, "update"), info.Sequence, args[0], file, replaced)
		}
		c, err := n.read(ctx, chp.ClientOptions{})
		if err != nil {
			return err
		}
		defer c.Close()
		replaced := replaces(file)
		var to *durable.BackupWriter
		bar := newProgress(cmd, "saving", -1)
		err = c.Backup(ctx, func(sequence int64) (_ commit.Checkpoint, err error) {
			if to, err = durable.NewBackup(file, 0, uint64(sequence)); err != nil {
				return nil, err
			}
			return bar.checkpoint(to), nil
		})
		bar.finish()
		if err != nil {
			return backupError(ctx, file, err)
		}
		info := to.Info()
		return report(cmd, "saved %s at sequence %d from %s to %s%s", command.Count(info.Records, "key"), info.Sequence, c.Server(), file, replaced)
	})
	return cmd
}

// replaces returns the line to report if a backup replaces a file.
func replaces(file string) string {
	if _, err := os.Stat(file); err != nil {
		return ""
	}
	return ", which replaced the file of that name"
}

// backupError is like logError for a backup to file. It does not name the unfinished file,
// which the user does not know.
func backupError(ctx context.Context, file string, err error) error {
	var path *fs.PathError
	if errors.As(err, &path) && strings.HasSuffix(path.Path, ".tmp") {
		if path.Op == "open" {
			return fail(exitRefused, "cannot create a file in the directory %s: %w", filepath.Dir(path.Path), path.Err)
		}
		return fail(exitRefused, "cannot write %s: %w", file, path.Err)
	}
	return logError(ctx, err)
}

func newRestore() *cobra.Command {
	return &cobra.Command{
		Use:   "restore FILE DIR",
		Short: "Restore the data of a server from a backup",
		Long: `Makes DIR a directory for chp serve --data, with the map that chp backup saved to
FILE. It creates DIR if necessary, and fails if DIR already has data of a server. It
also fails if FILE is damaged, or if a newer version of this program has written
something in it that this one does not understand; then nothing is restored.

Of a backup of a node of a cluster the map is restored, and not who the nodes are: DIR
is that of a server alone, or of the first node of a new cluster, to which others join.

If the command is interrupted, DIR has no data, and the command can be repeated.`,
		Example: `  chp restore map.backup /var/lib/chp
  chp serve --data /var/lib/chp`,
		Args: command.Args(2, 2),
		RunE: command.Runs(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			file, dir := args[0], args[1]
			stat, err := os.Stat(file)
			if err != nil {
				return fail(exitRefused, "%w", err)
			}
			// Also what is in the entries: else a server would not start with what was restored.
			check := chp.EntryCheck()
			bar := newProgress(cmd, "checking", stat.Size())
			_, err = durable.ReadBackup(file, bar.reading(func(e commit.Entry) error { return cmp.Or(ctx.Err(), check(e)) }))
			bar.finish()
			if err != nil {
				return logError(ctx, err)
			}
			bar = newProgress(cmd, "restoring", stat.Size())
			info, err := durable.Restore(ctx, file, dir, bar.add)
			bar.finish()
			if errors.Is(err, fs.ErrExist) {
				return fail(exitRefused, "%s already has a log; choose another directory", dir)
			}
			if err != nil {
				return logError(ctx, err)
			}
			return report(cmd, "restored %s up to sequence %d from %s to %s", command.Count(info.Records, "update"), info.Sequence, file, dir)
		}),
	}
}

// report prints a line on standard error.
func report(cmd *cobra.Command, format string, a ...any) error {
	_, err := fmt.Fprintf(cmd.ErrOrStderr(), "chp: "+format+"\n", a...)
	return err
}

// logError adds exitRefused to an error of the log, unless the command was interrupted.
func logError(ctx context.Context, err error) error {
	if coded := (*command.Error)(nil); errors.As(err, &coded) || ctx.Err() != nil {
		return err
	}
	return fail(exitRefused, "%s", logText(err))
}

// logText returns the text of an error of the log without the prefix of package commit,
// which may be within the text.
func logText(err error) string {
	if newer := (*commit.FormatError)(nil); errors.As(err, &newer) {
		err = newer // it names the file
	}
	return strings.TrimPrefix(strings.ReplaceAll(plain(err), ": log: ", ": "), "log: ")
}
