// Package command holds what this module's commands share: signals, exit codes,
// errors on standard error, output that cannot be written, the line that says that a
// device is ready, arguments, keys, and lines of JSON.
//
// A program's main is
//
//	os.Exit(command.Main(newRoot()))
//
// and each of its commands gets its function from [Runs], which gives every error an
// exit code. Use [Fail] for an error with a code of its own.
package command
