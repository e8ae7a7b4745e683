// Package version has the version of this module in the running program, whichever program
// that is.
package version

import (
	"cmp"
	"reflect"
	"runtime/debug"
	"strings"
)

// Module is the path of this module.
var Module = strings.TrimSuffix(reflect.TypeFor[here]().PkgPath(), "/internal/version")

type here struct{}

// stamped is the version that a release is built with (-ldflags -X); empty otherwise.
var stamped string

// String returns the version of the module: that of a release, v1.2.3 or with the commit for a
// build from a checkout or of a program that requires it, or "unknown".
func String() string {
	found := stamped
	if info, ok := debug.ReadBuildInfo(); ok && found == "" {
		for _, m := range append(info.Deps, &info.Main) {
			if m.Path == Module {
				found = m.Version
			}
		}
	}
	return cmp.Or(found, "unknown")
}
