package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"clustermap/chp"
	"clustermap/chp/access"
	"clustermap/internal/command"
	"clustermap/internal/visible"
	"clustermap/sockets"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"
)

// accessFlags are the flags of serve about the rights of clients.
type accessFlags struct {
	name  string
	plain bool
	watch bool
	audit string
	every bool // write of a client is audited

	file *access.File // of name
}

func (a *accessFlags) register(flags *pflag.FlagSet) {
	flags.StringVar(&a.name, "access", "", "`file` with the clients to accept, and what each may do (see chp access); it is read again at SIGHUP and by chp reload, as the files of --curve-key, --curve-allow, --curve-admin, --http-tls-cert, --http-tls-key, --http-client-ca, --http-token-file and --log-level are")
	flags.BoolVar(&a.plain, "plain", false, "clients prove who they are by a name and a password of --access, in clear text")
	flags.BoolVar(&a.watch, "watch-config", false, "read what is read again at SIGHUP also when its content has changed")
	flags.StringVar(&a.audit, "audit", "", "`file` to append a line of JSON to when somebody connects, is denied, refused or disconnected, changes rights or administers; it is opened again at SIGHUP and by chp reload")
	flags.BoolVar(&a.every, "audit-writes", false, "also for each update: its key, sequence and author, and the sizes of the value before and after; it needs --stamp, and a copy of the values in memory")
}

// security reads the file, and returns the security of the server.
func (a *accessFlags) security(s sockets.Security) (sockets.Security, error) {
	switch {
	case a.plain && a.name == "":
		return s, fail(exitUsage, "--plain needs --access: a file with names and passwords")
	case a.plain && s.CurveServer:
		return s, fail(exitUsage, "--plain and --curve-key exclude each other")
	case a.name == "":
		return s, nil
	}
	s.PlainServer = a.plain
	command.AddSource(command.Source{Flag: "access", Files: []string{a.name}, Stays: "the rights stay as they were", Load: a.load})
	var err error
	if a.file, err = access.Open(a.name); err != nil {
		return s, fail(exitUsage, "--access: %s", accessText(err))
	}
	return s, nil
}

// load is command.Source.Load.
func (a *accessFlags) load() (apply func() error, now string, err error) {
	policy, err := a.file.Load()
	if err != nil {
		return nil, "", errors.New(accessText(err))
	}
	return func() error { a.file.Set(policy); return nil }, command.Count(len(policy.Users()), "user"), nil
}

// accessText returns the text of an error of package access.
func accessText(err error) string {
	return visible.String(strings.ReplaceAll(err.Error(), "access: ", ""))
}

func newAccess() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "access",
		Short: "Check a file of rights, and make what is in it",
		Long: `Helps with the file of chp serve --access, which says who the clients of a server are,
and what each may do. docs/ACCESS.md describes it.`,
	}
	cmd.AddCommand(newAccessCheck(), newAccessHash(), newAccessToken())
	return cmd
}

func newAccessCheck() *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use:   "check [NAME [read|write|admin [KEY]]]",
		Short: "Say whether a file of rights is valid, and what somebody may do",
		Long: `Without arguments, checks the file of --file. With NAME, prints what that user, or
"anonymous", may do. With a verb and a key, or to read it a subtree, says whether the user may
do that; for admin there is no key.

Exits with 0 if the file is valid, and the user may; with 1 if not.`,
		Example: `  chp access check --file access.toml
  chp access check --file access.toml anna
  chp access check --file access.toml anna write /config/lamp`,
		Args: cobra.MaximumNArgs(3),
	}
	cmd.Flags().StringVar(&name, "file", "access.toml", "`file` of rights")
	cmd.RunE = command.Runs(func(_ context.Context, cmd *cobra.Command, args []string) error {
		f, err := access.Open(name)
		if err != nil {
			return fail(exitRefused, "%s", accessText(err))
		}
		p := f.Policy()
		if len(args) == 0 {
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s is valid: %s\n", visible.String(name), command.Count(len(p.Users()), "user"))
			return err
		}
		who := args[0]
		role := p.Role(who)
		if role == nil && who != access.Anonymous {
			return fail(exitRefused, "there is no user %q in %s", who, name)
		}
		if len(args) == 1 {
			if role == nil {
				return fail(exitRefused, "anonymous clients are not accepted")
			}
			limits := role.Limits()
			return printIdentity(cmd.OutOrStdout(), chp.Identity{Name: who, Restricted: true, Read: role.Reads(), Write: role.Writes(), Admin: role.Admin(), Updates: limits.Updates, Bytes: limits.Bytes, Keys: limits.Keys, Map: limits.Map})
		}
		verbs := map[string]chp.Verb{"read": chp.VerbRead, "write": chp.VerbWrite, "admin": chp.VerbAdmin}
		verb, key := verbs[args[1]], ""
		switch {
		case verb == 0:
			return fail(exitUsage, "%q: want read, write or admin", args[1])
		case verb == chp.VerbAdmin && len(args) == 3:
			return fail(exitUsage, "admin has no key")
		case verb != chp.VerbAdmin && len(args) == 2:
			return fail(exitUsage, "%s needs a key, or \"\" for the whole map", args[1])
		case len(args) == 3:
			key = args[2]
		}
		if err := p.Allow(who, verb, key); err != nil {
			return fail(exitRefused, "%s", plain(err))
		}
		_, err = fmt.Fprintln(cmd.OutOrStdout(), "allowed")
		return err
	})
	return cmd
}

func newAccessHash() *cobra.Command {
	return &cobra.Command{
		Use:   "hash",
		Short: "Print the hash of a password, for plain in a file of rights",
		Long: `Asks for a password and prints its hash, which the file has in its place. Without a
terminal it reads the password from standard input, up to the end of the line.`,
		Example: `  chp access hash
  chp access hash < password.txt`,
		Args: cobra.NoArgs,
		RunE: command.Runs(func(_ context.Context, cmd *cobra.Command, _ []string) error {
			password, err := readPassword(cmd)
			if err != nil {
				return fail(exitUsage, "cannot read the password: %w", err)
			}
			hash, err := access.HashPassword(password)
			if err != nil {
				return fail(exitUsage, "%s", accessText(err))
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), hash)
			return err
		}),
	}
}

// readPassword reads a line, from a terminal without showing it.
func readPassword(cmd *cobra.Command) (string, error) {
	if in, ok := cmd.InOrStdin().(*os.File); ok && term.IsTerminal(int(in.Fd())) {
		fmt.Fprint(cmd.ErrOrStderr(), "password: ")
		text, err := term.ReadPassword(int(in.Fd()))
		fmt.Fprintln(cmd.ErrOrStderr())
		return string(text), err
	}
	line, err := bufio.NewReader(io.LimitReader(cmd.InOrStdin(), 1024)).ReadString('\n')
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return strings.TrimRight(line, "\r\n"), err
}

func newAccessToken() *cobra.Command {
	return &cobra.Command{
		Use:   "token",
		Short: "Make a token, and print its hash for a file of rights",
		Long: `Prints a new random token on the first line, and its hash on the second: the file has the
hash (token), and the client sends the token. Keep the token secret: it cannot be found from the hash.`,
		Example: `  chp access token`,
		Args:    cobra.NoArgs,
		RunE: command.Runs(func(_ context.Context, cmd *cobra.Command, _ []string) error {
			token, hash := access.NewToken()
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s\n%s\n", token, hash)
			return err
		}),
	}
}
