package main

import (
	"context"
	"time"

	"clustermap/internal/command"

	"github.com/spf13/cobra"
)

func newGet() *cobra.Command {
	var n connection
	var raw bool
	cmd := &cobra.Command{
		Use:   "get KEY",
		Short: "Print the value of a key",
		Long: `Prints the value of KEY and a newline; with --raw only the bytes of the value.
Exits with 1 if there is no such key.`,
		Example: `  chp get /lamp/1
  chp get --raw /picture > picture.png`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	cmd.Flags().BoolVar(&raw, "raw", false, "print no newline after the value")
	n.register(cmd, 5*time.Second)
	n.registerModel(cmd)
	cmd.RunE = command.Runs(func(ctx context.Context, cmd *cobra.Command, args []string) error {
		servers, err := n.servers()
		if err != nil {
			return err
		}
		if err := n.needSnapshots(); err != nil {
			return err
		}
		key := args[0]
		c, err := n.openKey(ctx, servers, key)
		if err != nil {
			return err
		}
		defer c.Close()
		value, ok := c.Get(key)
		if !ok {
			return fail(exitRefused, "%q is not in the map of %s", key, c.Server())
		}
		if !raw {
			value = append(value, '\n')
		}
		_, err = cmd.OutOrStdout().Write(value)
		return err
	})
	return cmd
}
