package main

import (
	"context"
	"time"

	"clustermap/internal/command"

	"github.com/spf13/cobra"
)

func newDel() *cobra.Command {
	var n connection
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "del KEY",
		Short: "Delete a key, and print the sequence number of the update",
		Long: `Deletes KEY, waits until the server has published the update, and prints its
sequence number. If there is no such key, it changes nothing and exits with 1.

With --json it prints an object with key (key_base64 if it is not UTF-8) and seq.`,
		Example: `  chp del /lamp/1`,
		Args:    command.Args(1, 1),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a JSON object")
	n.register(cmd, 5*time.Second)
	n.registerModel(cmd)
	n.completeKeys(cmd, 1)
	cmd.RunE = command.Runs(func(ctx context.Context, cmd *cobra.Command, args []string) error {
		servers, err := n.servers()
		if err != nil {
			return err
		}
		if n.model > 0 && n.model < 5 {
			return fail(exitRefused, "--server-model %d: Clone models 1 to 4 have no deletions", n.model)
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
		return printSequence(cmd.OutOrStdout(), key, sequence, asJSON)
	})
	return cmd
}
