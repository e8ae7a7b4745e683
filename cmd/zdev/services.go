package main

import (
	"context"
	"errors"
	"fmt"
	"text/tabwriter"
	"time"

	"clustermap/internal/command"
	"clustermap/internal/jsonline"

	"github.com/spf13/cobra"
)

func newServices() *cobra.Command {
	var (
		at      atBroker
		timeout time.Duration
		asJSON  bool
	)
	cmd := &cobra.Command{
		Use:   "services",
		Short: "List the services of a broker (Majordomo)",
		Long: `Prints the services of a zdev broker that have workers or waiting requests. For each it
prints the name, the number of workers, the number of waiting requests, and the number of
requests that workers have.

Other brokers do not list their services; use zdev request mmi.service NAME to ask for
one by name.`,
		Example: `  zdev services
  zdev services --broker tcp://10.0.0.7:5555 --json`,
	}
	flags := cmd.Flags()
	at.register(cmd, flags)
	flags.DurationVar(&timeout, "timeout", 5*time.Second, "how long to wait for the broker")
	flags.BoolVar(&asJSON, "json", false, "print JSON objects, one per line")
	cmd.RunE = command.Runs(func(ctx context.Context, cmd *cobra.Command, _ []string) error {
		if timeout <= 0 {
			return command.Fail(command.ExitUsage, "--timeout must be above 0")
		}
		client, err := at.newClient()
		if err != nil {
			return err
		}
		defer client.Close()
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		services, err := client.Services(ctx)
		switch {
		case errors.Is(err, errors.ErrUnsupported):
			return command.Fail(command.ExitRefused, "the broker at %s does not list its services", at.broker)
		case err != nil:
			return at.requestError(err, timeout)
		}
		out := cmd.OutOrStdout()
		if asJSON {
			for _, s := range services {
				line := append(jsonline.AppendField([]byte{'{'}, "name", []byte(s.Name)), ',')
				line = append(jsonline.AppendNumber(line, "workers", int64(s.Workers)), ',')
				line = append(jsonline.AppendNumber(line, "waiting", int64(s.Waiting)), ',')
				line = append(jsonline.AppendNumber(line, "given", int64(s.Given)), '}', '\n')
				if _, err := out.Write(line); err != nil {
					return err
				}
			}
			return nil
		}
		table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
		fmt.Fprintln(table, "NAME\tWORKERS\tWAITING\tGIVEN")
		for _, s := range services {
			fmt.Fprintf(table, "%s\t%d\t%d\t%d\n", command.AppendPlain(nil, []byte(s.Name), false), s.Workers, s.Waiting, s.Given)
		}
		return table.Flush()
	})
	return cmd
}
