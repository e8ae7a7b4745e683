// Command gotest runs "go test -json", prints a summary, and runs again what failed, by
// itself and up to twice, so that chance does not fail a run of CI. What then passes is
// flaky: it is named with the text of its first failure, to be mended at its cause.
//
//	gotest NAME "PACKAGE..." [FLAG...]
//
// The flags are those of go test. It prints a line for each package, the output of the
// tests that failed or were skipped, and at the end a line with the counts, which it also
// writes to the file NAME.result. The file NAME.flaky gets a line for each flaky test. The
// exit status is 0 only if everything passed, at once or when run again.
package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"
)

const (
	maxTries = 2               // how often one thing is run again
	maxUnits = 5               // how many things are, after which it is not chance
	maxAgain = 5 * time.Minute // how long all that may take
)

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, `usage: gotest NAME "PACKAGE..." [FLAG...]`)
		os.Exit(2)
	}
	s := session{
		out:      os.Stdout,
		packages: strings.Fields(os.Args[2]),
		flags:    os.Args[3:],
		left:     maxAgain,
	}
	err := s.run()
	line := count(s.results)
	fmt.Println(line)
	if err != nil {
		fmt.Println("gotest:", err)
	}
	err = errors.Join(err,
		os.WriteFile(os.Args[1]+".result", []byte(line+"\n"), 0o666),
		os.WriteFile(os.Args[1]+".flaky", []byte(strings.Join(s.flaky, "")), 0o666))
	if err != nil {
		os.Exit(1)
	}
}

// A session is one run of all packages, and what is run again of them.
type session struct {
	out      io.Writer
	dir      string // where go test runs, the current folder if empty
	packages []string
	flags    []string
	env      []string // beside that of this process

	results map[string]*result // by package; of what was run again the latest
	units   int                // run again so far
	left    time.Duration      // for what is still to be run again
	flaky   []string           // lines
}

// run returns nil if everything passed, at once or when run again.
func (s *session) run() error {
	var err error
	if s.results, err = s.goTest(s.packages, nil); err != nil {
		return err
	}
	var units []unit
	for _, pkg := range slices.Sorted(maps.Keys(s.results)) {
		more, err := s.unitsOf(s.results[pkg])
		if err != nil {
			return err
		}
		units = append(units, more...)
	}
	return s.runAgain(units)
}

// goTest runs go test and returns the results of its packages. An error is one that says
// nothing of a package.
func (s *session) goTest(packages, more []string) (map[string]*result, error) {
	args := append([]string{"test", "-json"}, s.flags...)
	cmd := exec.Command("go", append(append(args, more...), packages...)...)
	cmd.Dir = s.dir
	cmd.Env = append(os.Environ(), s.env...)
	cmd.Stderr = s.out
	events, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	results, readErr := read(events, s.out)
	if readErr != nil {
		_, _ = io.Copy(io.Discard, events)
	}
	err = cmd.Wait()
	failed := false
	for _, r := range results {
		failed = failed || r.action == "fail"
		if r.action == "" {
			readErr = errors.Join(readErr, fmt.Errorf("go test did not report how %s ended", r.pkg))
		}
	}
	switch {
	case readErr != nil:
		return results, readErr
	case err != nil && !failed:
		return results, fmt.Errorf("go test: %w, without a package that failed", err)
	case err == nil && failed:
		return results, errors.New("go test: a package failed, but not the command")
	case len(results) == 0:
		return results, errors.New("go test: no packages")
	}
	return results, nil
}
