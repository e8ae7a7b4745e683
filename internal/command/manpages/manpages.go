// Package manpages writes the manual pages and the completion scripts of a command for a
// release. The commands themselves do not contain it: it is used by their builds with
// the tag docs.
package manpages

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"clustermap/internal/command"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"github.com/spf13/pflag"
)

// Main writes to the directory in the arguments of the program: DIR/man/man1 gets a page
// for each command, DIR/completions the scripts for bash, zsh, fish and PowerShell.
// sections are more sections for the page of the program, in Markdown, or empty. Main
// returns the exit code. The variable SOURCE_DATE_EPOCH sets the date of the pages.
func Main(root *cobra.Command, sections string) int {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "give a directory")
		return command.ExitUsage
	}
	if err := write(root, sections, os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return command.ExitRefused
	}
	return command.ExitDone
}

// write writes pages and scripts to a directory. See Main for sections.
func write(root *cobra.Command, sections, dir string) error {
	man, completions := filepath.Join(dir, "man", "man1"), filepath.Join(dir, "completions")
	for _, d := range []string{man, completions} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return err
		}
	}
	name := root.Name()
	for _, write := range []func() error{
		func() error { return root.GenBashCompletionFileV2(filepath.Join(completions, name+".bash"), true) },
		func() error { return root.GenZshCompletionFile(filepath.Join(completions, "_"+name)) },
		func() error { return root.GenFishCompletionFile(filepath.Join(completions, name+".fish"), true) },
		func() error { return root.GenPowerShellCompletionFileWithDesc(filepath.Join(completions, name+".ps1")) },
	} {
		if err := write(); err != nil {
			return err
		}
	}
	root.CompletionOptions.DisableDefaultCmd = true
	root.DisableAutoGenTag = true
	markdown(root)
	root.Use, root.DisableFlagsInUseLine = name+" COMMAND", true
	root.Long += "\n" + sections
	header := &doc.GenManHeader{Section: "1", Source: "clustermap", Manual: name + " manual"}
	return doc.GenManTree(root, header, man)
}

// markdown converts the texts of a command and of those below it to Markdown, which
// package doc expects.
func markdown(cmd *cobra.Command) {
	cmd.Long = toMarkdown(cmd.Long)
	cmd.Short = escape.Replace(cmd.Short)
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		_, usage := pflag.UnquoteUsage(f) // without the quotes of a value's name
		f.Usage = escape.Replace(usage)
	})
	for _, sub := range cmd.Commands() {
		markdown(sub)
	}
}

// escape escapes characters that have a meaning in Markdown.
var escape = strings.NewReplacer(`\`, `\\`, "*", `\*`, "_", `\_`, "`", "\\`", "<", `\<`, ">", `\>`, "[", `\[`, "]", `\]`)

// toMarkdown converts a text: indented lines become blocks of code.
func toMarkdown(text string) string {
	var b strings.Builder
	code := false
	for line := range strings.SplitSeq(command.Wrap(text, 72), "\n") {
		if indented := strings.HasPrefix(line, " "); indented != code {
			code = indented
			if code {
				b.WriteString("\n```\n")
			} else {
				b.WriteString("```\n\n")
			}
		}
		if !code {
			line = escape.Replace(line)
		}
		b.WriteString(line + "\n")
	}
	if code {
		b.WriteString("```\n")
	}
	return b.String()
}
