package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"clustermap/internal/command"

	"github.com/spf13/cobra"
)

func newContext() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "context",
		Short: "Name servers and keys, and choose among them",
		Long: `A context is a name for servers and the CURVE keys for them. The contexts are in
chp/contexts.toml in the user's configuration directory ($XDG_CONFIG_HOME or
~/.config on Linux); only the user can read the file, which has the names of key
files, not the keys.

Servers and keys of a command are, in this order, those of
  1  its flags: --server, --curve-key, --curve-server-key
  2  the context of --context
  3  the environment: $CHP_SERVER, $CHP_CURVE_KEY, $CHP_CURVE_SERVER_KEY
  4  the context of $CHP_CONTEXT, or else the current one (chp context use); not
     used at all if --server or $CHP_SERVER names servers`,
		Example: `  chp context set home --server tcp://10.0.0.1:5556 --server tcp://10.0.0.2:5566
  chp context use home
  chp get /lamp/1
  chp get /lamp/1 --context office`,
		Args: cobra.ArbitraryArgs,
	}
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		if len(args) == 0 {
			return fail(exitUsage, "name a command: list, use, set, show, delete")
		}
		return fail(exitUsage, "there is no command %q; name one of list, use, set, show, delete", args[0])
	}
	cmd.AddCommand(newContextList(), newContextUse(), newContextSet(), newContextShow(), newContextDelete())
	return cmd
}

func newContextList() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the contexts",
		Long: `Prints a line for each context: its name and its servers. The current one is marked
with *. With --json each line is an object with name, current, servers, curve_key and
curve_server_key.`,
		Example: `  chp context list`,
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON objects, one per line")
	cmd.RunE = command.Runs(func(_ context.Context, cmd *cobra.Command, _ []string) error {
		all, err := readContexts()
		if err != nil {
			return err
		}
		warnOverridden(cmd, &all)
		names := slices.Sorted(maps.Keys(all.Contexts))
		if asJSON {
			for _, name := range names {
				if err := printContext(cmd, name, &all); err != nil {
					return err
				}
			}
			return nil
		}
		table := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
		for _, name := range names {
			mark := " "
			if name == all.Current {
				mark = "*"
			}
			fmt.Fprintf(table, "%s %s\t%s\n", mark, name, strings.Join(all.Contexts[name].Servers, " "))
		}
		return table.Flush()
	})
	return cmd
}

// printContext prints a context as a JSON line.
func printContext(cmd *cobra.Command, name string, all *contexts) error {
	return json.NewEncoder(cmd.OutOrStdout()).Encode(struct {
		Name    string `json:"name"`
		Current bool   `json:"current"`
		serverContext
	}{name, name == all.Current, all.Contexts[name]})
}

func newContextUse() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "use NAME",
		Short: "Make a context the current one",
		Long: `Makes the context NAME the current one. With - there is no current context any more;
commands use $CHP_SERVER, or the server at ` + defaultServer + `.`,
		Example: `  chp context use home
  chp context use -`,
		Args:              command.Args(1, 1),
		ValidArgsFunction: completeContexts,
	}
	cmd.RunE = changesContexts(func(cmd *cobra.Command, name string, all *contexts) error {
		if name == "-" {
			all.Current = ""
			return nil
		}
		all.Current = name
		_, err := all.find(name)
		if err == nil {
			warnOverridden(cmd, all)
		}
		return err
	})
	return cmd
}

// warnOverridden says on standard error if a variable overrides the current context.
func warnOverridden(cmd *cobra.Command, all *contexts) {
	named := os.Getenv(contextVariable)
	switch {
	case all.Current == "":
	case os.Getenv(serverVariable) != "":
		fmt.Fprintf(cmd.ErrOrStderr(), "chp: $%s is set, and overrides the current context %s\n", serverVariable, all.Current)
	case named != "" && named != all.Current:
		fmt.Fprintf(cmd.ErrOrStderr(), "chp: $%s is %s, and overrides the current context %s\n", contextVariable, named, all.Current)
	}
}

func newContextSet() *cobra.Command {
	var n connection
	var key, serverKey string
	cmd := &cobra.Command{
		Use:   "set NAME",
		Short: "Create or change a context",
		Long: `Creates the context NAME, or changes it; what no flag names stays as it is. The first
context that is created becomes the current one. Servers and key files need not exist
yet; relative names of files are stored as absolute ones. A flag with an empty value
removes a key.`,
		Example: `  chp context set home --server tcp://10.0.0.1:5556
  chp context set home --curve-key client.key --curve-server-key server.pub`,
		Args:              command.Args(1, 1),
		ValidArgsFunction: completeContexts,
	}
	flags := cmd.Flags()
	flags.StringArrayVar(&n.flags, "server", nil, "server, tcp://HOST:PORT or ipc://PATH; repeat it to name backups in order")
	flags.Var((*command.Clearable)(&key), "curve-key", "`file` with the client's key, from chp keygen")
	flags.Var((*command.Clearable)(&serverKey), "curve-server-key", "public `key` of the servers, or a file with it")
	cmd.RunE = changesContexts(func(cmd *cobra.Command, name string, all *contexts) error {
		if err := checkContext(name); err != nil {
			return err
		}
		one, exists := all.Contexts[name]
		if cmd.Flags().Changed("server") {
			one.Servers = complete(n.flags)
			if err := checkServers(one.Servers); err != nil {
				return err
			}
		}
		if len(one.Servers) == 0 {
			return fail(exitUsage, "the context %s needs a server: add --server", name)
		}
		var err error
		if cmd.Flags().Changed("curve-key") {
			if _, err := os.Stat(key); err != nil && command.HasKey(key) {
				return fail(exitUsage, "--curve-key takes the name of a file, not a key: other users can see the command line")
			}
			if one.CurveKey, err = absolute(key); err != nil {
				return err
			}
		}
		if cmd.Flags().Changed("curve-server-key") {
			one.CurveServerKey = serverKey
			// A key contains any characters, so only an existing file is a file.
			if _, err := os.Stat(serverKey); err == nil {
				if one.CurveServerKey, err = absolute(serverKey); err != nil {
					return err
				}
			}
		}
		if (one.CurveKey == "") != (one.CurveServerKey == "") {
			return fail(exitUsage, "--curve-key and --curve-server-key need each other")
		}
		all.Contexts[name] = one
		if !exists && len(all.Contexts) == 1 {
			all.Current = name
		}
		return nil
	})
	return cmd
}

// absolute returns the absolute name of a file, or "" for "".
func absolute(name string) (string, error) {
	if name == "" {
		return "", nil
	}
	return filepath.Abs(name)
}

func newContextShow() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "show [NAME]",
		Short: "Print a context",
		Long: `Prints the context NAME, or the current one: the name, the servers, and the names of
the key files. With --json it prints an object with name, current, servers, curve_key
and curve_server_key.`,
		Example:           `  chp context show home`,
		Args:              command.Args(0, 1),
		ValidArgsFunction: completeContexts,
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a JSON object")
	cmd.RunE = command.Runs(func(_ context.Context, cmd *cobra.Command, args []string) error {
		all, err := readContexts()
		if err != nil {
			return err
		}
		name := all.Current
		if len(args) == 1 {
			name = args[0]
		}
		if name == "" {
			return fail(exitRefused, "there is no current context; choose one with chp context use")
		}
		one, err := all.find(name)
		if err != nil {
			return err
		}
		if asJSON {
			return printContext(cmd, name, &all)
		}
		text := "context           " + name + "\n"
		for _, server := range one.Servers {
			text += "server            " + server + "\n"
		}
		if one.CurveKey != "" {
			text += "curve-key         " + one.CurveKey + "\ncurve-server-key  " + one.CurveServerKey + "\n"
		}
		_, err = fmt.Fprint(cmd.OutOrStdout(), text)
		return err
	})
	return cmd
}

func newContextDelete() *cobra.Command {
	cmd := &cobra.Command{
		Use:               "delete NAME",
		Short:             "Delete a context",
		Long:              "Deletes the context NAME. Key files stay. If it was the current one, there is none.",
		Example:           `  chp context delete home`,
		Args:              command.Args(1, 1),
		ValidArgsFunction: completeContexts,
	}
	cmd.RunE = changesContexts(func(_ *cobra.Command, name string, all *contexts) error {
		_, err := all.find(name)
		delete(all.Contexts, name)
		if all.Current == name {
			all.Current = ""
		}
		return err
	})
	return cmd
}

// changesContexts returns a RunE that changes the contexts and writes them, unless change
// fails.
func changesContexts(change func(cmd *cobra.Command, name string, all *contexts) error) func(*cobra.Command, []string) error {
	return command.Runs(func(_ context.Context, cmd *cobra.Command, args []string) error {
		all, err := readContexts()
		if err != nil {
			return err
		}
		if err := change(cmd, args[0], &all); err != nil {
			return err
		}
		return all.write()
	})
}

func completeContexts(_ *cobra.Command, before []string, word string) ([]cobra.Completion, cobra.ShellCompDirective) {
	var names []cobra.Completion
	if all, err := readContexts(); err == nil && len(before) == 0 {
		for _, name := range slices.Sorted(maps.Keys(all.Contexts)) {
			if strings.HasPrefix(name, word) {
				names = append(names, name)
			}
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
