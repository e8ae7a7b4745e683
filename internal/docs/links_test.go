package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"
)

var (
	link   = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	fenced = regexp.MustCompile("(?s)```.*?```")
)

// anchor returns the name under which a page shows a heading.
func anchor(heading string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-', r == '_', unicode.IsLetter(r), unicode.IsDigit(r):
			return unicode.ToLower(r)
		}
		return -1
	}, heading)
}

// TestLinks: what a page links to in this module is there, and has the heading.
func TestLinks(t *testing.T) {
	t.Parallel()
	checked := 0
	for _, path := range pages(t) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllStringSubmatch(codeSpan.ReplaceAllString(fenced.ReplaceAllString(string(text), ""), ""), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			checked++
			name, heading, _ := strings.Cut(m[1], "#")
			to := path
			if name != "" {
				to = filepath.Join(filepath.Dir(path), filepath.FromSlash(name))
			}
			if _, err := os.Stat(to); err != nil {
				t.Errorf("%s: %v", filepath.Base(path), err)
				continue
			}
			if heading == "" {
				continue
			}
			target, err := os.ReadFile(to)
			if err != nil {
				t.Fatal(err)
			}
			found := false
			for line := range strings.Lines(string(target)) {
				words := strings.TrimLeft(line, "#")
				found = found || len(words) < len(line) && anchor(strings.TrimSpace(words)) == heading
			}
			if !found {
				t.Errorf("%s links to %s, which has no such heading", filepath.Base(path), m[1])
			}
		}
	}
	if checked < 100 {
		t.Errorf("found only %d links", checked)
	}
}
