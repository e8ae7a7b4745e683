package command

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"clustermap/zmtp"

	"github.com/spf13/cobra"
)

// NewKeygen returns the command keygen of a program. uses continues the example with
// commands that use server.key and client.key.
func NewKeygen(program, uses string) *cobra.Command {
	var out string
	cmd := &cobra.Command{
		Use:   "keygen",
		Short: "Generate a CURVE key pair, and print the public key",
		Long: `Generates a CURVE key pair, writes it to a new file that only its owner can read,
and prints the public key. A server and each client need different key pairs. Pass the
file to --curve-key. The public key is not secret: pass the server's to its clients
(--curve-server-key), and a client's to its server (--curve-allow).

The file has three lines: "chp CURVE key 1", "public KEY" and "secret KEY". A KEY has
40 characters (Z85), which programs pass to libzmq. Programs in Go read the file with
zmtp.ParseKeyFile.

A key contains characters that are special in a shell: put it in single quotes.`,
		Example: fmt.Sprintf("  %[1]s keygen --out server.key\n  %[1]s keygen --out client.key\n%[2]s", program, uses),
	}
	cmd.Flags().StringVar(&out, "out", program+".key", "`file` to write; it must not exist")
	cmd.RunE = Runs(func(_ context.Context, cmd *cobra.Command, _ []string) error {
		if out == "-" {
			return Fail(ExitUsage, "--out -: a secret key is written only to a file; name one")
		}
		pair := zmtp.GenerateKeyPair()
		if err := writeKeyFile(out, pair); err != nil {
			if errors.Is(err, fs.ErrExist) {
				return Fail(ExitRefused, "%s already exists, and may be a key in use; choose another file with --out", out)
			}
			return Fail(ExitRefused, "cannot write the key file: %w", err)
		}
		if !cmd.Flags().Changed("out") {
			fmt.Fprintf(cmd.ErrOrStderr(), "%s: wrote the key pair to %s\n", program, out)
		}
		_, err := fmt.Fprintln(cmd.OutOrStdout(), pair.Public)
		return err
	})
	return cmd
}
