package command

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
)

// helpWidth is the maximum width of help texts in columns.
const helpWidth = 80

// flagWidth is helpWidth for package pflag, whose lines can be up to 4 columns longer.
const flagWidth = helpWidth - 4

// wrapHelp makes a command and those below it print help texts of at most 80 columns.
func wrapHelp(root *cobra.Command) {
	root.SetHelpFunc(func(cmd *cobra.Command, _ []string) {
		text := cmd.Long
		if text == "" {
			text = cmd.Short
		}
		if text != "" {
			fmt.Fprintf(cmd.OutOrStdout(), "%s\n\n", Wrap(text, helpWidth))
		}
		fmt.Fprint(cmd.OutOrStdout(), cmd.UsageString())
	})
	root.SetUsageFunc(func(cmd *cobra.Command) error { return usage(cmd.OutOrStderr(), cmd) })
}

// usage prints cobra's default usage, with wrapped flags.
func usage(w io.Writer, cmd *cobra.Command) error {
	var b strings.Builder
	b.WriteString("Usage:")
	if cmd.Runnable() {
		fmt.Fprintf(&b, "\n  %s", cmd.UseLine())
	}
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintf(&b, "\n  %s [command]", cmd.CommandPath())
	}
	if cmd.HasExample() {
		fmt.Fprintf(&b, "\n\nExamples:\n%s", cmd.Example)
	}
	if cmd.HasAvailableSubCommands() {
		b.WriteString("\n\nAvailable Commands:")
		for _, sub := range cmd.Commands() {
			if sub.IsAvailableCommand() || sub.Name() == "help" {
				fmt.Fprintf(&b, "\n  %-*s %s", sub.NamePadding(), sub.Name(), sub.Short)
			}
		}
	}
	if cmd.HasAvailableLocalFlags() {
		fmt.Fprintf(&b, "\n\nFlags:\n%s", strings.TrimRight(cmd.LocalFlags().FlagUsagesWrapped(flagWidth), " \n"))
	}
	if cmd.HasAvailableInheritedFlags() {
		fmt.Fprintf(&b, "\n\nGlobal Flags:\n%s", strings.TrimRight(cmd.InheritedFlags().FlagUsagesWrapped(flagWidth), " \n"))
	}
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintf(&b, "\n\nUse \"%s [command] --help\" for more information about a command.", cmd.CommandPath())
	}
	_, err := fmt.Fprintln(w, b.String())
	return err
}

// Wrap breaks text into lines of at most width columns. Consecutive lines that do not
// begin with a space are one paragraph and are filled. Each other line is wrapped by
// itself, with its continuation below its last column of text, and together with the lines
// that continue that column.
func Wrap(text string, width int) string {
	var lines, words []string
	first, rest := "", "" // what the lines of words begin with
	flush := func() {
		lines = fill(lines, first, rest, words, width)
		first, rest, words = "", "", nil
	}
	for line := range strings.SplitSeq(strings.TrimRight(text, " \n"), "\n") {
		at := indent(line)
		head := strings.TrimRight(line[:at], " ")
		switch {
		case line == "":
			flush()
			lines = append(lines, "")
		case line[0] != ' ':
			if first != "" {
				flush()
			}
			words = append(words, strings.Fields(line)...)
		case head == "" && at == len(rest) && rest != first:
			words = append(words, strings.Fields(line)...)
		default:
			flush()
			rest = strings.Repeat(" ", at)
			first = head + rest[len(head):]
			words = strings.Fields(line[at:])
		}
	}
	flush()
	return strings.Join(lines, "\n")
}

// indent returns where the last column of a line begins: after the last gap of two or
// more spaces.
func indent(line string) int {
	trimmed := strings.TrimRight(line, " ")
	at := len(trimmed) - len(strings.TrimLeft(trimmed, " "))
	if gap := strings.LastIndex(trimmed, "  "); gap >= 0 {
		at = max(at, gap+2)
	}
	return at
}

// fill appends words as lines. The first line begins with first, the others with rest.
func fill(lines []string, first, rest string, words []string, width int) []string {
	line, empty := first, true
	for _, word := range words {
		if !empty && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > width {
			lines = append(lines, line)
			line, empty = rest, true
		}
		if !empty {
			line += " "
		}
		line += word
		empty = false
	}
	if !empty || first != "" {
		lines = append(lines, line)
	}
	return lines
}
