package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// helpers are in the package of each case. failFirst reports whether this is one of the
// first n calls with the name, in all processes of the case.
const helpers = `package p

import (
	"os"
	"path/filepath"
	"strconv"
)

func failFirst(n int, name string) bool {
	file := filepath.Join(os.Getenv("GOTEST_STATE"), name)
	text, _ := os.ReadFile(file)
	calls, _ := strconv.Atoi(string(text))
	if err := os.WriteFile(file, []byte(strconv.Itoa(calls+1)), 0o666); err != nil {
		panic(err)
	}
	return calls < n
}
`

func TestGoTest(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		test  string // the package's tests
		flags string
		flaky []string // what is said to be flaky
		err   string   // part of the error; it passes if empty
		line  string   // with the counts
		text  string   // that has to be in the output
		runs  map[string]string
	}{
		"all pass": {
			test: `func TestA(t *testing.T) {}; func TestB(t *testing.T) { t.Skip() }`,
			line: "packages: 1 ok, 0 failed; tests: 1 passed, 0 failed, 1 skipped",
		},
		"a test that fails once": {
			test: `func TestA(t *testing.T) { if failFirst(1, "a") { t.Error("the first text") } }
				func TestB(t *testing.T) { failFirst(0, "b") }`,
			flaky: []string{"TestA"},
			line:  "packages: 1 ok, 0 failed; tests: 2 passed, 0 failed, 0 skipped",
			text:  "FLAKY scratch TestA\n\t    p_test.go:3: the first text\n",
			runs:  map[string]string{"a": "2", "b": "1"},
		},
		"a test that fails twice": {
			test:  `func TestA(t *testing.T) { if failFirst(2, "a") { t.Fail() } }`,
			flaky: []string{"TestA"},
			line:  "packages: 1 ok, 0 failed; tests: 1 passed, 0 failed, 0 skipped",
		},
		"a test that fails always": {
			test: `func TestA(t *testing.T) { failFirst(0, "a"); t.Fail() }`,
			err:  "TestA failed, and again when run by itself",
			line: "packages: 0 ok, 1 failed; tests: 0 passed, 1 failed, 0 skipped",
			runs: map[string]string{"a": "3"},
		},
		"a test that fails and is skipped when run again": {
			test: `func TestA(t *testing.T) { if !failFirst(1, "a") { t.Skip() }; t.Fail() }`,
			err:  "TestA failed, and again",
		},
		"a test that has the name of another in it": {
			test: `func TestA(t *testing.T) { if failFirst(1, "a") { t.Fail() } }
				func TestAB(t *testing.T) { failFirst(0, "ab") }`,
			flaky: []string{"TestA"},
			runs:  map[string]string{"ab": "1"},
		},
		"a subtest": {
			test: `func TestA(t *testing.T) {
					t.Run("x", func(t *testing.T) { if failFirst(1, "x") { t.Error("text of x") } })
					t.Run("y", func(t *testing.T) {})
				}`,
			flaky: []string{"TestA/x"},
			line:  "packages: 1 ok, 0 failed; tests: 3 passed, 0 failed, 0 skipped",
			text:  "FLAKY scratch TestA/x\n\t    p_test.go:4: text of x\n",
		},
		"a subtest that fails always": {
			test: `func TestA(t *testing.T) { t.Run("x", func(t *testing.T) { t.Fail() }) }`,
			err:  "TestA failed, and again",
		},
		"a seed of a fuzz target": {
			test:  `func FuzzA(f *testing.F) { f.Add(1); f.Fuzz(func(t *testing.T, n int) { if failFirst(1, "a") { t.Fail() } }) }`,
			flaky: []string{"FuzzA/seed#0"},
		},
		"an example": {
			test:  "func ExampleA() {\nfmt.Println(failFirst(1, \"a\"))\n// Output: false\n}",
			flaky: []string{"ExampleA"},
		},
		"flags and environment are the same": {
			test: `func TestA(t *testing.T) {
					if testing.Short() && tag && os.Getenv("GOTEST_STATE") != "" && !failFirst(1, "a") { return }
					t.Fail()
				}`,
			flags: "-short -tags=some",
			flaky: []string{"TestA"},
		},
		"what is skipped by a flag stays so": {
			test: `func TestA(t *testing.T) { if failFirst(1, "a") { panic("once") } }
				func TestB(t *testing.T) { t.Fail() }`,
			flags: "-skip=TestB",
			flaky: []string{"TestA"},
		},
		"a panic of a test": {
			test: `func TestA(t *testing.T) { failFirst(0, "a") }
				func TestB(t *testing.T) { if failFirst(1, "b") { panic("the first text") } }
				func TestC(t *testing.T) { failFirst(0, "c") }`,
			flaky: []string{"TestB"},
			line:  "packages: 1 ok, 0 failed; tests: 3 passed, 0 failed, 0 skipped",
			text:  "\tpanic: the first text",
			runs:  map[string]string{"a": "2", "b": "2", "c": "1"},
		},
		"a panic of a goroutine": {
			test: `func TestA(t *testing.T) { t.Parallel(); if failFirst(1, "a") { go func() { panic("the first text") }(); select {} } }
				func TestB(t *testing.T) { t.Parallel(); failFirst(0, "b") }`,
			flags: "-parallel=1",
			flaky: []string{"(its process ended during TestA)"},
			line:  "packages: 1 ok, 0 failed; tests: 2 passed, 0 failed, 0 skipped",
			runs:  map[string]string{"b": "1"},
		},
		"a failure, and a panic while other tests wait": {
			test: `func TestA(t *testing.T) { t.Parallel() }
				func TestB(t *testing.T) { if failFirst(1, "b") { t.Fail() } }
				func TestC(t *testing.T) { t.Run("x", func(t *testing.T) { if failFirst(1, "c") { go panic("once"); select {} } }) }`,
			flaky: []string{"TestB (its process ended during TestC/x)"},
			line:  "packages: 1 ok, 0 failed; tests: 4 passed, 0 failed, 0 skipped",
		},
		"a panic that repeats": {
			test: `func TestA(t *testing.T) { failFirst(0, "a"); panic(1) }`,
			err:  "scratch failed, and again",
			runs: map[string]string{"a": "3"},
		},
		"a panic, and what had not run fails": {
			test: `func TestA(t *testing.T) { if failFirst(1, "a") { panic("once") } }
				func TestB(t *testing.T) { failFirst(0, "b"); t.Fail() }`,
			err:   "TestB failed, and again",
			flaky: []string{"TestA"},
			runs:  map[string]string{"b": "3"},
		},
		"a panic, and what had not run fails once": {
			test: `func TestA(t *testing.T) { if failFirst(1, "a") { panic("once") } }
				func TestB(t *testing.T) { if failFirst(1, "b") { t.Fail() } }`,
			flaky: []string{"TestA", "TestB"},
			line:  "packages: 1 ok, 0 failed; tests: 2 passed, 0 failed, 0 skipped",
		},
		"time runs out": {
			test: `func TestA(t *testing.T) { if failFirst(1, "a") { select {} } }
				func TestB(t *testing.T) { failFirst(0, "b") }`,
			flags: "-timeout=1s",
			flaky: []string{"(its process ended during TestA)"},
			text:  "\tpanic: test timed out after 1s",
			runs:  map[string]string{"b": "1"},
		},
		"a test ends the process": {
			test: `func TestA(t *testing.T) { if failFirst(1, "a") { os.Exit(1) } }
				func TestB(t *testing.T) { failFirst(0, "b") }`,
			flaky: []string{"(its process ended during TestA)"},
			runs:  map[string]string{"b": "1"},
		},
		"the process fails after its tests": {
			test: `func TestMain(m *testing.M) { m.Run(); if failFirst(1, "main") { println("left over"); os.Exit(1) } }
				func TestA(t *testing.T) { failFirst(0, "a") }`,
			flaky: []string{"(its process ended during no test)"},
			text:  "\tleft over\n",
			runs:  map[string]string{"a": "2"},
		},
		"the process fails before its tests": {
			test: `func TestMain(m *testing.M) { if failFirst(1, "main") { os.Exit(1) }; m.Run() }
				func TestA(t *testing.T) { failFirst(0, "a") }`,
			flaky: []string{"(its process ended during no test)"},
			runs:  map[string]string{"a": "1"},
		},
		"the process fails always": {
			test: `func TestMain(m *testing.M) { failFirst(0, "main"); os.Exit(1) }
				func TestA(t *testing.T) {}`,
			err:  "scratch failed, and again",
			runs: map[string]string{"main": "3"},
		},
		"it does not build": {
			test: `func TestA(t *testing.T) { undefined() }`,
			err:  "scratch does not build",
			line: "packages: 0 ok, 1 failed; tests: 0 passed, 0 failed, 0 skipped",
		},
		"a data race": {
			test: `func TestA(t *testing.T) { if failFirst(1, "a") { println("WARNING: DATA RACE"); t.Fail() } }`,
			err:  "not a matter of chance",
			runs: map[string]string{"a": "1"},
		},
		"five fail once": {
			test: many(maxUnits), flaky: []string{"TestA", "TestB", "TestC", "TestD", "TestE"},
		},
		"more than five fail once": {
			test: many(maxUnits + 1), err: "not chance", runs: map[string]string{"a": "1"},
		},
		"a benchmark": {
			test: `func BenchmarkA(b *testing.B) { b.Run("x", func(b *testing.B) { if failFirst(1, "a") { b.Fail() } }) }
				func BenchmarkB(b *testing.B) { failFirst(0, "b") }
				func TestA(t *testing.T) { t.Fail() }`,
			flags: "-run=^$ -bench=. -benchtime=1x",
			flaky: []string{"BenchmarkA/x"},
			line:  "packages: 1 ok, 0 failed; tests: 3 passed, 0 failed, 0 skipped",
			runs:  map[string]string{"b": "1"},
		},
		"a test before benchmarks": {
			test: `func BenchmarkA(b *testing.B) { failFirst(0, "b") }
				func TestA(t *testing.T) { if failFirst(1, "a") { t.Fail() } }`,
			flags: "-bench=. -benchtime=1x",
			flaky: []string{"TestA"},
			runs:  map[string]string{"b": "1"},
		},
		"a flag that go test does not know": {
			test: `func TestA(t *testing.T) {}`, flags: "-unknown", err: "failed, and again", text: "-unknown",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, out := t.TempDir(), &output{}
			write(t, dir, "go.mod", "module scratch\n\ngo 1.26\n")
			write(t, dir, "helpers_test.go", helpers)
			write(t, dir, "some_test.go", "//go:build some\n\npackage p\n\nconst tag = true\n")
			write(t, dir, "other_test.go", "//go:build !some\n\npackage p\n\nconst tag = false\n")
			write(t, dir, "p_test.go", `package p; import ("fmt"; "os"; "testing"); var _ testing.TB; var _ = fmt.Sprint(os.Args, tag)`+"\n\n"+c.test+"\n")
			s := session{out: out, dir: dir, packages: []string{"."}, left: time.Minute,
				flags: append(strings.Fields(c.flags), "-vet=off", "-count=1", "-ldflags=-s -w"),
				env:   []string{"GOTEST_STATE=" + dir, "GOFLAGS="}}
			err := s.run()
			if c.err == "" && err != nil || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
				t.Errorf("error %v, want %q", err, c.err)
			}
			var flaky []string
			for _, f := range c.flaky {
				flaky = append(flaky, "scratch "+f+"\n")
			}
			if !slices.Equal(s.flaky, flaky) {
				t.Errorf("flaky: %q, want %q", s.flaky, flaky)
			}
			if line := count(s.results); c.line != "" && line != c.line {
				t.Errorf("%s, want %s", line, c.line)
			}
			if !strings.Contains(out.String(), c.text) {
				t.Errorf("%q is not in the output", c.text)
			}
			for file, want := range c.runs {
				if got, _ := os.ReadFile(filepath.Join(dir, file)); string(got) != want {
					t.Errorf("%s ran %q times, want %s", file, got, want)
				}
			}
			if t.Failed() {
				t.Logf("output:\n%s", out)
			}
		})
	}
}

// output is written by a process and by the reader of its events.
type output struct {
	mu   sync.Mutex
	text strings.Builder
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// many returns n tests that fail once.
func many(n int) string {
	var tests strings.Builder
	for i := range n {
		name := string(rune('A' + i))
		tests.WriteString("func Test" + name + `(t *testing.T) { if failFirst(1, "` + strings.ToLower(name) + `") { t.Fail() } }` + "\n")
	}
	return tests.String()
}

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
}

// TestTimeIsLimited runs nothing again when the time for it is used up.
func TestTimeIsLimited(t *testing.T) {
	t.Parallel()
	s := session{out: &bytes.Buffer{}}
	if err := s.runAgain([]unit{{pkg: "p"}}); err == nil || !strings.Contains(err.Error(), "no time is left") {
		t.Error(err)
	}
}

// TestReadNeedsEnds does not take a package for one that passed if go test says nothing of its end.
func TestReadNeedsEnds(t *testing.T) {
	t.Parallel()
	results, err := read(strings.NewReader(`{"Action":"start","Package":"p"}`+"\n"), &bytes.Buffer{})
	if err != nil || len(results) != 1 || results["p"].action != "" {
		t.Errorf("%v, %v", results, err)
	}
	if line := count(results); !strings.Contains(line, "0 ok, 1 failed") {
		t.Error(line)
	}
}
