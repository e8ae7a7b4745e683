package command

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
)

// argless makes the commands below one refuse arguments if they say nothing about them.
// Unlike cobra.NoArgs they do not report them as unknown commands.
func argless(root *cobra.Command) {
	for _, cmd := range root.Commands() {
		argless(cmd)
		if cmd.Args != nil || cmd.ValidArgsFunction != nil {
			continue
		}
		cmd.ValidArgsFunction = cobra.NoFileCompletions
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return fmt.Errorf("%s takes no arguments, but got %q", cmd.CommandPath(), args[0])
			}
			return nil
		}
	}
}

// Number is a whole number on the command line.
type Number int

func (n *Number) String() string { return strconv.Itoa(int(*n)) }

// Set parses a number.
func (n *Number) Set(s string) error {
	i, err := strconv.Atoi(s)
	if err != nil {
		return fmt.Errorf("%q is not a whole number", s)
	}
	*n = Number(i)
	return nil
}

// Type returns the name of the type in help texts.
func (n *Number) Type() string { return "int" }

// strict makes cobra's own commands refuse unknown names. By default they print a help
// text and exit with code 0.
func strict(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, cmd := range root.Commands() {
		switch cmd.Name() {
		case "help":
			help := cmd.Run
			cmd.Run = nil
			cmd.RunE = func(cmd *cobra.Command, args []string) error {
				if found, rest, err := root.Find(args); err != nil || found == nil || len(rest) > 0 {
					return fmt.Errorf("there is no command %q", strings.Join(args, " "))
				}
				help(cmd, args)
				return nil
			}
		case "completion":
			var shells []string
			for _, shell := range cmd.Commands() {
				shells = append(shells, shell.Name())
			}
			cmd.Args = cobra.ArbitraryArgs
			cmd.RunE = func(_ *cobra.Command, args []string) error {
				if len(args) == 0 {
					return fmt.Errorf("name a shell: %s", strings.Join(shells, ", "))
				}
				return fmt.Errorf("there is no completion for %q; name one of %s", args[0], strings.Join(shells, ", "))
			}
		}
	}
}

// Complete sets the values that the shell completes for a flag.
func Complete(cmd *cobra.Command, flag string, words ...cobra.Completion) {
	if err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err) // the flag does not exist
	}
}

// knownCommand refuses arguments of a root command: the first one is no command of it. The
// error has one line, unlike cobra's, whose line ends would be escaped (ErrorText).
func knownCommand(root *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	root.SuggestionsMinimumDistance = max(root.SuggestionsMinimumDistance, 2)
	text := fmt.Sprintf("unknown command %q for %q", args[0], root.CommandPath())
	if similar := root.SuggestionsFor(args[0]); len(similar) > 0 {
		text += "; did you mean " + strings.Join(similar, " or ") + "?"
	}
	return errors.New(text)
}
