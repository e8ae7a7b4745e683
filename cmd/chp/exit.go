package main

import "clustermap/internal/command"

// The exit codes; see the help text of chp.
const (
	exitDone     = command.ExitDone
	exitRefused  = command.ExitRefused
	exitUsage    = command.ExitUsage
	exitNoServer = command.ExitNoAnswer
)

// fail is like fmt.Errorf with an exit code.
func fail(code int, format string, a ...any) error { return command.Fail(code, format, a...) }
