package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
)

// event is one of test2json's (go doc test2json).
type event struct {
	Action      string
	Package     string
	Test        string
	Elapsed     float64
	Output      string
	FailedBuild string
}

// A result is what go test reported of one package.
type result struct {
	pkg      string
	action   string // pass, fail, skip (it has no tests), or empty: go test ended first
	broken   bool   // it does not build
	complete bool   // its program came to the end of all tests, and not all had passed
	proof    string // a line of output that no second run can refute

	tests  map[string]string   // the last of each test, with subtests: pass, fail, skip; run, pause and cont if it did not end
	failed []string            // those that failed, in the order in which they ended
	output map[string][]string // of tests that failed or have not ended; of the package itself without a name
	trace  []string            // the first lines of the trace with which the process ended
}

const (
	maxTrace = 100 // lines kept of a trace, which may be of thousands of goroutines
	maxNames = 5   // tests named when a process ends
)

// Output that is never chance: the race detector and the runtime's own checks
// report only faults that are there.
var proofs = []string{"WARNING: DATA RACE", "race detected outside of test execution", "fatal error: concurrent map", "fatal error: checkptr"}

func isBenchmark(test string) bool { return strings.HasPrefix(test, "Benchmark") }

// read reads the output of go test -json, prints what is worth reading, and returns the
// results by package.
func read(events io.Reader, out io.Writer) (map[string]*result, error) {
	results := map[string]*result{}
	lines := bufio.NewScanner(events)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var e event
		if json.Unmarshal(lines.Bytes(), &e) != nil {
			fmt.Fprintln(out, lines.Text()) // not of a test, such as a download
			continue
		}
		if e.Action == "build-output" {
			fmt.Fprint(out, e.Output)
		}
		if e.Package == "" {
			continue
		}
		r := results[e.Package]
		if r == nil {
			r = &result{pkg: e.Package, tests: map[string]string{}, output: map[string][]string{}}
			results[e.Package] = r
		}
		r.take(e, out)
	}
	return results, lines.Err()
}

func (r *result) take(e event, out io.Writer) {
	switch e.Action {
	case "run", "pause", "cont":
		r.tests[e.Test] = e.Action
	case "output":
		r.takeOutput(e, out)
	case "pass", "fail", "skip":
		if e.Test == "" {
			r.end(e, out)
			return
		}
		r.tests[e.Test] = e.Action
		if e.Action != "pass" {
			fmt.Fprintf(out, "%s %s:\n%s", e.Package, e.Test, strings.Join(r.output[e.Test], ""))
		}
		if e.Action == "fail" {
			r.failed = append(r.failed, e.Test)
		} else {
			delete(r.output, e.Test)
		}
	}
}

func (r *result) takeOutput(e event, out io.Writer) {
	for _, p := range proofs {
		if r.proof == "" && strings.Contains(e.Output, p) {
			r.proof = strings.TrimSpace(e.Output)
		}
	}
	// go test reports a trace as output of the test that printed last, which may
	// have passed. So it is printed at once.
	if len(r.trace) > 0 || strings.HasPrefix(e.Output, "panic: ") || strings.HasPrefix(e.Output, "fatal error: ") {
		fmt.Fprint(out, e.Output)
		if len(r.trace) < maxTrace {
			r.trace = append(r.trace, e.Output)
		}
		return
	}
	switch e.Output {
	case "=== RUN   " + e.Test + "\n", "=== PAUSE " + e.Test + "\n", "=== CONT  " + e.Test + "\n":
		return
	case "FAIL\n":
		r.complete = r.complete || e.Test == ""
	}
	r.output[e.Test] = append(r.output[e.Test], e.Output)
}

// end takes the end of the package.
func (r *result) end(e event, out io.Writer) {
	r.action, r.broken = e.Action, e.FailedBuild != ""
	for _, name := range r.running() {
		r.complete = false
		fmt.Fprintf(out, "%s %s did not end:\n%s", r.pkg, name, strings.Join(r.output[name], ""))
	}
	r.complete = r.complete && len(r.trace) == 0
	switch e.Action {
	case "pass":
		fmt.Fprintf(out, "ok    %-28s %7.2fs  %d tests\n", r.pkg, e.Elapsed, len(r.tests))
	case "fail":
		// A panic belongs to the package, not to a test.
		fmt.Fprint(out, strings.Join(r.output[""], ""))
		fmt.Fprintf(out, "FAIL  %-28s %7.2fs  %d of %d tests failed\n", r.pkg, e.Elapsed, len(r.failed), len(r.tests))
	}
}

// running returns the tests that ran when the process ended. Of benchmarks that pass go
// test does not report the end.
func (r *result) running() []string {
	var names []string
	for name, how := range r.tests {
		if (how == "run" || how == "cont") && !isBenchmark(name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// within reports whether a test is this one or one of its subtests; every test is within
// the package, which has no name.
func within(name, test string) bool {
	return test == "" || name == test || strings.HasPrefix(name, test+"/")
}

// innermost drops the tests of which a subtest is among the names, too.
func innermost(names []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		return slices.ContainsFunc(names, func(other string) bool { return strings.HasPrefix(other, name+"/") })
	})
}

// list names tests, if they are few.
func list(names []string) string {
	if more := len(names) - maxNames; more > 0 {
		names = append(names[:maxNames:maxNames], fmt.Sprintf("%d more", more))
	}
	return strings.Join(names, ", ")
}

// blame names what failed within a test or the package.
func (r *result) blame(test string) string {
	failed := slices.DeleteFunc(slices.Clone(r.failed), func(name string) bool { return !within(name, test) })
	what := []string{r.pkg}
	if len(failed) > 0 {
		what = append(what, list(innermost(failed)))
	}
	if running := r.running(); test == "" && len(running) > 0 {
		what = append(what, "(its process ended during "+list(innermost(running))+")")
	} else if len(failed) == 0 {
		what = append(what, "(its process ended during no test)")
	}
	return strings.Join(what, " ")
}

// text returns what a test or the package printed when it failed.
func (r *result) text(test string) string {
	var text strings.Builder
	for _, name := range slices.Concat(r.failed, r.running()) {
		if within(name, test) {
			text.WriteString(strings.Join(r.output[name], ""))
		}
	}
	if test == "" {
		text.WriteString(strings.Join(r.output[""], ""))
		text.WriteString(strings.Join(r.trace, ""))
	}
	return text.String()
}

// replace takes what a second run reported of a test and its subtests. If nothing that
// failed is left, the package has passed.
func (r *result) replace(test string, again *result) {
	for name := range r.tests {
		if within(name, test) {
			delete(r.tests, name)
		}
	}
	for name, how := range again.tests {
		r.tests[name] = how
	}
	left := false
	for _, how := range r.tests {
		left = left || how == "fail"
	}
	if !left {
		r.action = "pass"
	}
}

// count counts packages and tests.
func count(results map[string]*result) string {
	var ok, bad, passed, failed, skipped int
	for _, r := range results {
		switch r.action {
		case "pass":
			ok++
		case "fail", "":
			bad++
		}
		for name, how := range r.tests {
			switch {
			case how == "skip":
				skipped++
			case how == "pass", how == "run" && isBenchmark(name):
				passed++
			default:
				failed++
			}
		}
	}
	return fmt.Sprintf("packages: %d ok, %d failed; tests: %d passed, %d failed, %d skipped", ok, bad, passed, failed, skipped)
}
