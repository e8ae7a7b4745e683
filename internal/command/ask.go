package command

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// Interactive reports whether somebody can be asked: the command's input and standard error
// are a terminal.
func Interactive(cmd *cobra.Command) bool {
	in, ok := cmd.InOrStdin().(*os.File)
	return ok && term.IsTerminal(int(in.Fd())) && Terminal(cmd.ErrOrStderr()) != nil
}

// Ask asks a question on the terminal and reports whether the answer is yes. Without a
// terminal, where nobody would answer, it asks nothing and returns true. The error is that
// of ctx.
func Ask(ctx context.Context, cmd *cobra.Command, question string) (bool, error) {
	if !Interactive(cmd) {
		return true, nil
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "%s: %s [y/N] ", cmd.Root().Name(), question)
	answer, _ := bufio.NewReader(Interruptible(ctx, cmd.InOrStdin())).ReadString('\n')
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return true, nil
	}
	return false, nil
}
