package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"clustermap/zmtp"

	"github.com/spf13/cobra"
)

// defaultKeyFile is where keygen puts a key.
const defaultKeyFile = "chp.key"

func newKeygen() *cobra.Command {
	var out string
	cmd := &cobra.Command{
		Use:   "keygen",
		Short: "Make a key for CURVE, and print its public half",
		Long: `Makes a key pair for CURVE, writes it to a new file that only its owner can read,
and prints the public key. A server needs one, and each client. The file is for
--curve-key; the public key may be known to everyone. A server's goes to its clients
(--curve-server-key), a client's to its server (--curve-allow).

The characters of a key mean something to a shell: put it in single quotes.`,
		Example: `  chp keygen --out server.key
  chp keygen --out client.key
  chp serve --curve-key server.key --curve-allow client.key
  chp get /lamp/1 --curve-key client.key --curve-server-key server.key`,
		Args:              noArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	cmd.Flags().StringVar(&out, "out", defaultKeyFile, "`file` to write; it must not exist")
	cmd.RunE = runs(func(_ context.Context, cmd *cobra.Command, _ []string) error {
		pair := zmtp.GenerateKeyPair()
		if err := writeKeyFile(out, pair); err != nil {
			if errors.Is(err, fs.ErrExist) {
				return fail(exitRefused, "%s exists already, and may be a key in use; choose another file with --out", out)
			}
			return fail(exitRefused, "cannot write the key file: %w", err)
		}
		_, err := fmt.Fprintln(cmd.OutOrStdout(), pair.Public)
		return err
	})
	return cmd
}
