package main

import (
	"context"
	"fmt"
	"time"

	"clustermap/internal/command"

	"github.com/spf13/cobra"
)

func newDel() *cobra.Command {
	var n connection
	cmd := &cobra.Command{
		Use:   "del KEY",
		Short: "Delete a key, and print the sequence number of the update",
		Long: `Deletes KEY, waits until the server has published the update, and prints its
sequence number. If there is no such key, it changes nothing and exits with 1.`,
		Example:           `  chp del /lamp/1`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	n.register(cmd, 5*time.Second)
	n.registerModel(cmd)
	cmd.RunE = command.Runs(func(ctx context.Context, cmd *cobra.Command, args []string) error {
		servers, err := n.servers()
		if err != nil {
			return err
		}
		key := args[0]
		sequence, err := n.update(ctx, servers, key, func(ctx context.Context, c *client) (int64, error) {
			if _, ok := c.Get(key); !ok {
				return 0, fail(exitRefused, "%q is not in the map of %s", key, c.Server())
			}
			return c.DeleteSync(ctx, key)
		})
		if err != nil {
			return err
		}
		_, err = fmt.Fprintln(cmd.OutOrStdout(), sequence)
		return err
	})
	return cmd
}
