package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"clustermap/internal/command"
	"clustermap/internal/jsonline"

	"github.com/spf13/cobra"
)

func newAdd() *cobra.Command {
	var n connection
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "add KEY N",
		Short: "Add to a counter, and print the sum",
		Long: `Adds N, a whole number, to the decimal number that is the value of KEY, or to 0 if
there is no such key, and prints the sum. No addition is lost, however many are made at
the same time. The key does not expire any more, nor with a lease. Write -- before a negative number.

With --json it prints an object with key (key_base64 if it is not UTF-8) and value, the
sum, a string as in chp get --json.`,
		Example: `  chp add /visits 1
  chp add /stock/apples -- -3`,
		Args: command.Args(2, 2),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a JSON object")
	n.register(cmd, 5*time.Second)
	n.registerModel(cmd)
	n.completeKeys(cmd, 1)
	cmd.RunE = command.Runs(func(ctx context.Context, cmd *cobra.Command, args []string) error {
		key := args[0]
		by, err := strconv.ParseInt(args[1], 10, 64)
		if err != nil {
			return fail(exitUsage, "%q is not a whole number of 64 bits", args[1])
		}
		limited, cancel := context.WithTimeout(ctx, n.timeout)
		defer cancel()
		c, err := n.openKeys(ctx, n.read, key)
		if err != nil {
			return err
		}
		defer c.Close()
		sum, err := c.Add(limited, key, by)
		if err != nil {
			return c.judged(cmd, err, asJSON)
		}
		line := fmt.Appendln(nil, sum)
		if asJSON {
			line = jsonline.AppendField([]byte{'{'}, "key", []byte(key))
			line = append(jsonline.AppendField(append(line, ','), "value", strconv.AppendInt(nil, sum, 10)), '}', '\n')
		}
		_, err = cmd.OutOrStdout().Write(line)
		return err
	})
	return cmd
}
