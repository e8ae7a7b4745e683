package command

import (
	"clustermap/internal/link"

	"github.com/spf13/pflag"
)

// Endpoints lets the values of flags be endpoints as users write them: HOST:PORT stands
// for tcp://HOST:PORT. The flags must exist.
func Endpoints(flags *pflag.FlagSet, names ...string) {
	for _, name := range names {
		f := flags.Lookup(name)
		if f.DefValue == "[]" {
			f.DefValue = "" // as of a flag of another type, which the help does not show
		}
		f.Value = completed{f.Value}
	}
}

// completed is a flag whose values are completed.
type completed struct{ pflag.Value }

// Set sets the value, or adds it to a list.
func (c completed) Set(text string) error { return c.Value.Set(link.Complete(text)) }
