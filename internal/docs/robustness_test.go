package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	mutationName = regexp.MustCompile(`= off\("(cluster-[a-z-]+)"\)`)
	mutationRow  = regexp.MustCompile(`\{name: "(cluster-[a-z-]+)", .*run: ([^,}]+).*\}`)
	quoted       = regexp.MustCompile(`"([^"]+)"`)
	testName     = regexp.MustCompile(`\bTest[A-Z]\w*`)
	profileOf    = regexp.MustCompile(`(?m)^\t\{name: "([a-z]+)"`)
)

// TestRobustness: ROBUSTNESS.md has every mutation of a cluster with what notices it, every profile of the simulation,
// and checks and tests that exist.
func TestRobustness(t *testing.T) {
	t.Parallel()
	read := func(path ...string) string {
		b, err := os.ReadFile(filepath.Join(append([]string{root}, path...)...))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	text := page(t, "ROBUSTNESS.md")

	noticed := map[string]string{}
	for _, row := range rows(section(t, text, "## Each safeguard switched off")) {
		noticed[spans(row[0])[0]] = row[2]
	}
	table := map[string][]string{}
	for _, m := range mutationRow.FindAllStringSubmatch(read("test", "chaos", "mutate_test.go"), -1) {
		by := testName.FindAllString(m[2], -1)
		if _, checks, ok := strings.Cut(m[0], "checks: []string{"); ok {
			for _, c := range quoted.FindAllStringSubmatch(checks[:strings.Index(checks, "}")], -1) {
				by = append(by, c[1])
			}
		}
		table[m[1]] = by
	}
	names := mutationName.FindAllStringSubmatch(read("internal", "mutate", "on.go"), -1)
	for _, m := range names {
		by, listed := noticed[m[1]]
		if !listed {
			t.Errorf("the page does not have the mutation %s", m[1])
		} else if !slices.ContainsFunc(table[m[1]], func(check string) bool { return slices.Contains(spans(by), check) }) {
			t.Errorf("%s: the page says %q; the test %q", m[1], by, table[m[1]])
		}
	}
	if len(names) < 6 || len(noticed) != len(names) {
		t.Errorf("%d mutations, and %d on the page", len(names), len(noticed))
	}

	var profiles []string
	for _, m := range profileOf.FindAllStringSubmatch(read("chp", "cluster", "sim_run_test.go"), -1) {
		profiles = append(profiles, m[1])
	}
	var onPage []string
	for _, row := range rows(section(t, text, "## How it is tested")) {
		onPage = append(onPage, spans(row[0])...)
	}
	if !slices.Equal(profiles, onPage) {
		t.Errorf("the profiles are %q, and on the page %q", profiles, onPage)
	}

	tests, sources := map[string]bool{}, ""
	for _, folder := range []string{"chp/cluster", "chp/durable", "chp/internal/member", "cmd/chp", "test/chaos"} {
		files, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(folder), "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			source, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range declared.FindAllStringSubmatch(string(source), -1) {
				tests[m[1]] = true
			}
			sources += string(source)
		}
	}
	for _, name := range testName.FindAllString(text, -1) {
		if !tests[name] {
			t.Errorf("there is no %s", name)
		}
	}
	for _, row := range rows(section(t, text, "## Checks")) {
		for _, check := range spans(row[0]) {
			if !strings.Contains(sources, `"`+check+`"`) {
				t.Errorf("there is no check %q", check)
			}
		}
	}
}

var declared = regexp.MustCompile(`(?m)^func (Test\w+)\(`)
