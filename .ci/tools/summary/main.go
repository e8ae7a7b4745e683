// Command summary reads the output of "go test -json" and prints a summary: a line for
// each package, the output of the tests that failed or were skipped, and at the end a line
// with the counts, which it also writes to the file named by its argument.
//
// Whether the tests passed is go test's exit status, not its own.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"strings"
)

// event is one of test2json's (go doc test2json).
type event struct {
	Action  string
	Package string
	Test    string
	Elapsed float64
	Output  string
}

type test struct{ pkg, name string }

type counts struct{ passed, failed, skipped int }

type summary struct {
	output   map[test][]string // of packages, and of tests that have not ended
	packages counts
	tests    counts
	inside   map[string]counts // by package
	dying    map[string]bool   // packages whose trace has begun
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: go test -json ... | summary file")
		os.Exit(2)
	}
	s := summary{output: map[test][]string{}, inside: map[string]counts{}, dying: map[string]bool{}}
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var e event
		if json.Unmarshal(lines.Bytes(), &e) != nil {
			fmt.Println(lines.Text()) // not of a test, such as a download
			continue
		}
		s.take(e)
	}
	// The output of tests that a panic ended.
	for t, output := range s.output {
		if t.name != "" {
			fmt.Printf("%s %s did not end:\n%s", t.pkg, t.name, strings.Join(output, ""))
		}
	}
	line := fmt.Sprintf("packages: %d ok, %d failed; tests: %d passed, %d failed, %d skipped",
		s.packages.passed, s.packages.failed, s.tests.passed, s.tests.failed, s.tests.skipped)
	fmt.Println(line)
	if err := os.WriteFile(os.Args[1], []byte(line+"\n"), 0o666); err != nil {
		fmt.Fprintln(os.Stderr, "summary:", err)
		os.Exit(1)
	}
}

func (s *summary) take(e event) {
	t := test{e.Package, e.Test}
	switch e.Action {
	case "output":
		// go test reports a trace as output of the test that printed last, which may
		// have passed. So it is printed at once.
		if strings.HasPrefix(e.Output, "panic: ") || strings.HasPrefix(e.Output, "fatal error: ") {
			s.dying[e.Package] = true
		}
		if s.dying[e.Package] {
			fmt.Print(e.Output)
			return
		}
		if e.Output != "=== RUN   "+e.Test+"\n" && e.Output != "=== PAUSE "+e.Test+"\n" && e.Output != "=== CONT  "+e.Test+"\n" {
			s.output[t] = append(s.output[t], e.Output)
		}
	case "build-output":
		fmt.Print(e.Output)
	case "pass", "fail", "skip":
		if e.Test == "" {
			s.endPackage(e)
		} else {
			s.endTest(e)
		}
		delete(s.output, t)
	}
}

func (s *summary) endTest(e event) {
	output := strings.Join(s.output[test{e.Package, e.Test}], "")
	inside := s.inside[e.Package]
	for _, c := range []*counts{&s.tests, &inside} {
		switch e.Action {
		case "pass":
			c.passed++
		case "fail":
			c.failed++
		case "skip":
			c.skipped++
		}
	}
	s.inside[e.Package] = inside
	if e.Action != "pass" {
		fmt.Printf("%s %s:\n%s", e.Package, e.Test, output)
	}
}

func (s *summary) endPackage(e event) {
	c := s.inside[e.Package]
	switch e.Action {
	case "pass":
		s.packages.passed++
		fmt.Printf("ok    %-28s %7.2fs  %d tests\n", e.Package, e.Elapsed, c.passed+c.skipped)
	case "fail":
		s.packages.failed++
		// A panic belongs to the package, not to a test.
		fmt.Print(strings.Join(s.output[test{e.Package, ""}], ""))
		fmt.Printf("FAIL  %-28s %7.2fs  %d of %d tests failed\n", e.Package, e.Elapsed, c.failed, c.passed+c.failed+c.skipped)
	}
}
