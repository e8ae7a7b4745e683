package main

import "clustermap/internal/command"

// The exit codes, as the help text of chp states them.
const (
	exitDone     = command.ExitDone
	exitRefused  = command.ExitRefused
	exitUsage    = command.ExitUsage
	exitNoServer = command.ExitNoAnswer
)

// fail is fmt.Errorf with an exit code.
func fail(code int, format string, a ...any) error { return command.Fail(code, format, a...) }
