package command

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"text/tabwriter"

	"clustermap/internal/version"

	"github.com/spf13/cobra"
)

// build describes how the program was built.
type build struct {
	Program  string `json:"program"`
	Version  string `json:"version"`            // of the module; with a commit for a build from a checkout
	Revision string `json:"revision,omitempty"` // the commit; empty if it was built without git
	Time     string `json:"time,omitempty"`     // of the commit, RFC 3339
	Modified bool   `json:"modified"`           // the checkout had changes
	Go       string `json:"go"`                 // the Go release
	OS       string `json:"os"`
	Arch     string `json:"arch"`
	Race     bool   `json:"race,omitempty"` // built with the race detector
}

// readBuild returns the build of the running program.
func readBuild(program string) build {
	b := build{Program: program, Version: version.String(), Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Revision = s.Value
		case "vcs.time":
			b.Time = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		case "-race":
			b.Race = s.Value == "true"
		}
	}
	return b
}

// print writes the build as lines of text.
func (b *build) print(w io.Writer) error {
	if _, err := fmt.Fprintf(w, "%s %s\n", b.Program, b.Version); err != nil {
		return err
	}
	table := tabwriter.NewWriter(w, 0, 0, 1, ' ', 0)
	if b.Revision != "" {
		modified := ""
		if b.Modified {
			modified = ", with changes"
		}
		fmt.Fprintf(table, "revision\t%s%s\ndate\t%s\n", b.Revision, modified, b.Time)
	}
	race := ""
	if b.Race {
		race = ", race detector"
	}
	fmt.Fprintf(table, "go\t%s %s/%s%s\n", b.Go, b.OS, b.Arch, race)
	return table.Flush()
}

// NewVersion returns the command version of a program.
func NewVersion(program string) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version and how the program was built",
		Long: `Prints the version of the program, the commit that it was built from and its date,
whether the checkout had changes, the Go release and the platform. What was unknown
when the program was built is left out.

With --json it prints an object with program, version, revision, time, modified, go,
os and arch.`,
		Example: "  " + program + " version\n  " + program + " version --json",
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a JSON object")
	cmd.RunE = Runs(func(_ context.Context, cmd *cobra.Command, _ []string) error {
		b := readBuild(cmd.Root().Name())
		if asJSON {
			return json.NewEncoder(cmd.OutOrStdout()).Encode(b)
		}
		return b.print(cmd.OutOrStdout())
	})
	return cmd
}
