package command

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"clustermap/zmtp"

	"github.com/spf13/cobra"
)

// NewKeygen returns the command keygen of a program. uses continues the example,
// which has made server.key and client.key, with commands that use them.
func NewKeygen(program, uses string) *cobra.Command {
	var out string
	cmd := &cobra.Command{
		Use:   "keygen",
		Short: "Generate a CURVE key pair, and print the public key",
		Long: `Generates a CURVE key pair, writes it to a new file that only its owner can read,
and prints the public key. A server and each client need a key pair of their own. Use
the file with --curve-key. The public key is not secret: the server's goes to its
clients (--curve-server-key), a client's to its server (--curve-allow).

A key contains characters that are special in a shell: put it in single quotes.`,
		Example:           fmt.Sprintf("  %[1]s keygen --out server.key\n  %[1]s keygen --out client.key\n%[2]s", program, uses),
		Args:              NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	cmd.Flags().StringVar(&out, "out", program+".key", "`file` to write; it must not exist")
	cmd.RunE = Runs(func(_ context.Context, cmd *cobra.Command, _ []string) error {
		pair := zmtp.GenerateKeyPair()
		if err := writeKeyFile(out, pair); err != nil {
			if errors.Is(err, fs.ErrExist) {
				return Fail(ExitRefused, "%s already exists, and may be a key in use; choose another file with --out", out)
			}
			return Fail(ExitRefused, "cannot write the key file: %w", err)
		}
		_, err := fmt.Fprintln(cmd.OutOrStdout(), pair.Public)
		return err
	})
	return cmd
}
