package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"clustermap/chp"
	"clustermap/internal/command"
	"clustermap/internal/visible"

	"github.com/spf13/cobra"
)

func newWhoami() *cobra.Command {
	var n connection
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "whoami",
		Short: "Print who a server takes this client for, and what it may do",
		Long: `Asks the servers in the order of --server until one answers, and prints the name by which
it knows this client, the client's public key, and what it may read and write. "whole map" is
every key. Without chp serve --access every client may do everything.

With --json it prints an object: name, key, restricted, read, write (lists of subtrees and keys;
"" is the whole map), admin, updates and bytes (the most a second, or 0).`,
		Example: `  chp whoami
  chp whoami --json | jq .read`,
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a JSON object")
	n.register(cmd, 5*time.Second)
	cmd.RunE = command.Runs(func(ctx context.Context, cmd *cobra.Command, _ []string) error {
		var who chp.Identity
		err := n.firstAnswer(ctx, func(ctx context.Context, server string) (err error) {
			who, err = chp.WhoAmI(ctx, server, n.security)
			return err
		})
		if err != nil {
			return err
		}
		if asJSON {
			return json.NewEncoder(cmd.OutOrStdout()).Encode(who)
		}
		return printIdentity(cmd.OutOrStdout(), who)
	})
	return cmd
}

// firstAnswer asks the servers one after the other, until one answers.
func (n *connection) firstAnswer(ctx context.Context, ask func(ctx context.Context, server string) error) error {
	servers, err := n.servers()
	if err != nil {
		return err
	}
	var why []string
	code := exitRefused
	for _, server := range servers {
		limited, cancel := context.WithTimeout(ctx, n.timeout)
		err := ask(limited, server)
		cancel()
		coded := (*command.Error)(nil)
		switch {
		case err == nil || ctx.Err() != nil || errors.As(err, &coded):
			return err
		case asDenied(err) != nil:
			return fail(exitRefused, "%s", plain(asDenied(err)))
		}
		if !refuses(err) {
			code = exitNoServer
		}
		why = append(why, server+" ("+n.whyUnanswered(server, err)+")")
	}
	return fail(code, "no server answered: %s", strings.Join(why, ", "))
}

// asDenied returns the error of a client that may not do something, or nil.
func asDenied(err error) error {
	if why, ok := errors.AsType[*chp.AccessError](err); ok {
		return why
	}
	return nil
}

// plainError is an error whose text is that of plain.
type plainError struct{ error }

func (e plainError) Error() string { return plain(e.error) }
func (e plainError) Unwrap() error { return e.error }

// printIdentity prints who somebody is and what that one may do.
func printIdentity(out io.Writer, who chp.Identity) error {
	parts := func(list []string) string {
		if len(list) == 0 {
			return "nothing"
		}
		if list[0] == "" {
			return "whole map"
		}
		shown := make([]string, len(list))
		for i, s := range list {
			shown[i] = visible.String(s)
		}
		return strings.Join(shown, " ")
	}
	row := func(dst []byte, name, value string) []byte {
		if value == "" {
			return dst
		}
		return fmt.Appendf(dst, "%-6s %s\n", name, value)
	}
	name := who.Name
	if name == "" {
		name = "nobody"
	}
	text := row(row(nil, "name", visible.String(name)), "key", visible.String(who.Key))
	text = row(row(text, "read", parts(who.Read)), "write", parts(who.Write))
	admin := "no"
	if who.Admin {
		admin = "yes"
	}
	text = row(text, "admin", admin)
	var limits []string
	if who.Updates > 0 {
		limits = append(limits, command.Count(who.Updates, "update")+"/s")
	}
	if who.Bytes > 0 {
		size := command.Bytes(who.Bytes)
		limits = append(limits, size.String()+"/s")
	}
	if who.Keys > 0 {
		limits = append(limits, command.Count(int(who.Keys), "key"))
	}
	if who.Map > 0 {
		size := command.Bytes(who.Map)
		limits = append(limits, size.String()+" of the map")
	}
	text = row(text, "limits", strings.Join(limits, ", "))
	_, err := out.Write(text)
	return err
}

func newReload() *cobra.Command {
	var n connection
	cmd := &cobra.Command{
		Use:   "reload",
		Short: "Make servers read their files again",
		Long: `Makes each server of --server read again what it reads at SIGHUP: the rights of --access,
the keys of --curve-key, --curve-allow and --curve-admin, the certificates and tokens of
--http, and the level of the log, if --log-level names a file. Clients whose rights have
changed are disconnected.
A file with a mistake changes nothing, and the command prints why. Only an administrator
may ask.

Exits with 1 if a server could not read a file, or refuses, and with 3 if one does not answer.`,
		Example: `  chp reload
  chp reload --server tcp://127.0.0.1:5556 --server tcp://127.0.0.1:5566`,
	}
	n.register(cmd, 5*time.Second)
	cmd.RunE = command.Runs(func(ctx context.Context, cmd *cobra.Command, _ []string) error {
		servers, err := n.servers()
		if err != nil {
			return err
		}
		var failed error
		for _, server := range servers {
			one := n
			one.list = []string{server}
			err := one.firstAnswer(ctx, func(ctx context.Context, server string) error {
				err := chp.Reload(ctx, server, n.security)
				if refusal := (*chp.ReloadError)(nil); errors.As(err, &refusal) {
					return fail(exitRefused, "%s goes on with what it had: %s", server, visible.String(strings.ReplaceAll(refusal.Reason, "\n", "; ")))
				}
				return err
			})
			if err != nil {
				failed = errors.Join(failed, err)
				continue
			}
			if _, err := fmt.Fprintf(cmd.OutOrStdout(), "%s has read its files again\n", visible.String(server)); err != nil {
				return err
			}
		}
		return failed
	})
	return cmd
}
