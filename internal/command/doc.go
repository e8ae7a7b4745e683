// Package command is shared by this module's commands. It handles signals, exit codes,
// errors on standard error, write errors on standard output, the line that reports that
// a device is ready, arguments, keys, and lines of JSON.
//
// The main function of a program is
//
//	os.Exit(command.Main(newRoot()))
//
// Each command sets RunE to the result of [Runs], which gives every error an exit code.
// Use [Fail] for an error with a specific exit code.
package command
