package main

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// A unit is what is run again by itself: a test, with its subtests, or a whole package.
type unit struct {
	pkg, test string // test is empty for a whole package
	first     *result
}

func (u unit) String() string {
	if u.test == "" {
		return u.pkg
	}
	return u.pkg + " " + u.test
}

// flags select the unit among all that the package's program could run. go test takes the
// last of several flags.
func (u unit) flags() []string {
	switch {
	case u.test == "":
		return nil
	case isBenchmark(u.test):
		return []string{"-run=^$", "-bench=^" + u.test + "$"}
	default:
		return []string{"-run=^" + u.test + "$", "-bench=^$"}
	}
}

// passed reports whether the unit has run, and passed.
func (u unit) passed(r *result) bool {
	if r.action != "pass" {
		return false
	}
	if u.test == "" {
		// What failed before must not be skipped now. That there was a test at all is
		// what r.action says.
		for _, name := range u.first.failed {
			if r.tests[name] == "skip" {
				return false
			}
		}
		return true
	}
	how := r.tests[u.test]
	return how == "pass" || how == "run" && isBenchmark(u.test)
}

// unitsOf returns what has to be run again of a package that failed, or an error if it
// failed for a reason that no second run can refute.
func (s *session) unitsOf(r *result) ([]unit, error) {
	switch {
	case r.action != "fail":
		return nil, nil
	case r.broken:
		return nil, fmt.Errorf("%s does not build", r.pkg)
	case r.proof != "":
		return nil, fmt.Errorf("%s: %q is not a matter of chance, so nothing is run again", r.pkg, r.proof)
	}
	benchmarks := slices.ContainsFunc(s.flags, func(f string) bool { return strings.Contains(f, "-bench") })
	var units []unit
	for _, name := range r.failed {
		if strings.Contains(name, "/") {
			continue
		}
		if benchmarks && !isBenchmark(name) {
			// The benchmarks wait for all tests, and have not run.
			return []unit{{r.pkg, "", r}}, nil
		}
		units = append(units, unit{r.pkg, name, r})
	}
	if !r.complete || len(units) == 0 {
		// Its process ended early, so there are tests that have not run; or it failed
		// after all tests had passed.
		return []unit{{r.pkg, "", r}}, nil
	}
	return units, nil
}

// runAgain runs units until each has passed, or one has failed too often.
func (s *session) runAgain(units []unit) error {
	if s.units += len(units); s.units > maxUnits {
		return fmt.Errorf("%d tests or packages failed: more than %d are not chance, and none is run again", s.units, maxUnits)
	}
	for _, u := range units {
		if err := s.runUnit(u); err != nil {
			return err
		}
	}
	return nil
}

func (s *session) runUnit(u unit) error {
	for try := 1; try <= maxTries; try++ {
		if s.left < time.Second {
			return fmt.Errorf("no time is left to run %s again", u)
		}
		fmt.Fprintf(s.out, "%s failed. It runs again by itself, for the %s time:\n", u, []string{"first", "second"}[try-1])
		begin := time.Now()
		results, err := s.goTest([]string{u.pkg}, append(u.flags(), "-count=1", "-timeout="+s.left.String()))
		s.left -= time.Since(begin)
		r := results[u.pkg]
		if err != nil || r == nil {
			return fmt.Errorf("%s, when run again: %w", u, err)
		}
		if u.passed(r) {
			s.pass(u, r)
			return nil
		}
		more, err := s.unitsOf(r)
		if err != nil {
			return err
		}
		if u.test == "" && len(more) > 0 && more[0].test != "" {
			// This time all of it has run, and single tests failed.
			s.pass(u, r)
			return s.runAgain(more)
		}
	}
	return fmt.Errorf("%s failed, and again when run by itself", u)
}

// pass notes that a unit passed, and prints how it had failed.
func (s *session) pass(u unit, r *result) {
	line := u.first.blame(u.test)
	s.flaky = append(s.flaky, line+"\n")
	fmt.Fprintf(s.out, "FLAKY %s\n", line)
	for text := range strings.Lines(u.first.text(u.test)) {
		fmt.Fprintf(s.out, "\t%s\n", strings.TrimSuffix(text, "\n"))
	}
	if u.test == "" {
		s.results[u.pkg] = r
		return
	}
	s.results[u.pkg].replace(u.test, r)
}
