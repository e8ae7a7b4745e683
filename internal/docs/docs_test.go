package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// root is the path of the module's folder.
const root = "../.."

// page returns the text of a page in the folder docs.
func page(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, "docs", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// section returns the text between a heading and the next one of its level.
func section(t *testing.T, text, heading string) string {
	t.Helper()
	_, body, found := strings.Cut(text, "\n"+heading+"\n")
	if !found {
		t.Fatalf("no heading %q", heading)
	}
	rank, _, _ := strings.Cut(heading, " ")
	body, _, _ = strings.Cut(body, "\n"+rank+" ")
	return body
}

var codeSpan = regexp.MustCompile("`([^`]+)`")

// spans returns the code spans in a text.
func spans(text string) (all []string) {
	for _, m := range codeSpan.FindAllStringSubmatch(text, -1) {
		all = append(all, m[1])
	}
	return all
}

// rows returns the cells of all tables, without headings.
func rows(text string) (all [][]string) {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if !strings.HasPrefix(line, "|") || strings.HasPrefix(line, "|--") || i+1 < len(lines) && strings.HasPrefix(lines[i+1], "|--") {
			continue
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		for j := range cells {
			cells[j] = strings.TrimSpace(cells[j])
		}
		all = append(all, cells)
	}
	return all
}

var testFunction = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)

// tests returns the names of all tests and fuzz targets of the module.
func tests(t *testing.T) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		b, err := os.ReadFile(path)
		for _, m := range testFunction.FindAllSubmatch(b, -1) {
			all[string(m[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestFileMap: the file map of DESIGN.md lists every file of the libraries, and no
// others. Every package may have doc.go and limits.go.
func TestFileMap(t *testing.T) {
	t.Parallel()
	text := section(t, page(t, "DESIGN.md"), "## File map")
	folders := []string{"zmtp", "sockets", "internal/link", "internal/queue", "internal/topic", "chp", "chp/internal/ledger", "chp/internal/state", "chp/commit", "chp/recipes", "chp/cluster", "chp/durable", "internal/kvmsg", "internal/store", "internal/timer"}
	patterns, err := filepath.Glob(filepath.Join(root, "patterns", "*"))
	if err != nil || len(patterns) == 0 {
		t.Fatalf("%d patterns, %v", len(patterns), err)
	}
	for _, p := range patterns {
		if name := filepath.Base(p); name != "internal" {
			folders = append(folders, "patterns/"+name)
		}
	}
	folders = append(folders, "patterns/internal/subscribe")
	for _, folder := range folders {
		_, part, found := strings.Cut(text, "\n`"+folder+"/`\n")
		if !found {
			t.Errorf("%s/ is missing", folder)
			continue
		}
		if i := strings.Index(part, "/`"); i >= 0 {
			part = part[:i]
		}
		var patterns []string
		for _, s := range spans(part) {
			if strings.HasSuffix(s, ".go") || strings.HasSuffix(s, "*") {
				patterns = append(patterns, s)
			}
		}
		used := map[string]bool{}
		files, err := filepath.Glob(filepath.Join(root, folder, "*.go"))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s/: %d files, %v", folder, len(files), err)
		}
		for _, f := range files {
			name := filepath.Base(f)
			listed := name == "doc.go" || name == "limits.go" || strings.HasSuffix(name, "_test.go")
			for _, p := range patterns {
				if ok, _ := filepath.Match(p, name); ok {
					listed, used[p] = true, true
				}
			}
			if !listed {
				t.Errorf("%s/%s is not in the file map", folder, name)
			}
		}
		for _, p := range patterns {
			if !used[p] {
				t.Errorf("%s/ has no file %s", folder, p)
			}
		}
	}
}

// TestDesignMapsToFiles: the files that the text of DESIGN.md names by their path exist.
func TestDesignMapsToFiles(t *testing.T) {
	t.Parallel()
	text, _, _ := strings.Cut(page(t, "DESIGN.md"), "\n## File map\n")
	n := 0
	for line := range strings.Lines(text) {
		for _, s := range spans(line) {
			if !strings.Contains(s, "/") || !strings.HasSuffix(s, ".go") || strings.HasPrefix(s, "github.com/") {
				continue
			}
			n++
			if _, err := os.Stat(filepath.Join(root, s)); err != nil {
				t.Error(err)
			}
		}
	}
	if n < 50 {
		t.Errorf("found only %d files", n)
	}
}

var pageLink = regexp.MustCompile(`\]\(([A-Z]+\.md)\)`)

// TestPatterns: PATTERNS.md lists every package of patterns/ and no others, and the
// pages that it links to exist.
func TestPatterns(t *testing.T) {
	t.Parallel()
	text := page(t, "PATTERNS.md")
	folders, err := os.ReadDir(filepath.Join(root, "patterns"))
	if err != nil {
		t.Fatal(err)
	}
	there := map[string]bool{}
	for _, f := range folders {
		there["patterns/"+f.Name()] = f.IsDir()
		if f.Name() != "internal" && !strings.Contains(text, "`patterns/"+f.Name()+"`") {
			t.Errorf("patterns/%s is missing", f.Name())
		}
	}
	for _, s := range spans(text) {
		if strings.HasPrefix(s, "patterns/") && !there[s] {
			t.Errorf("there is no %s", s)
		}
	}
	for _, m := range pageLink.FindAllStringSubmatch(text, -1) {
		page(t, m[1])
	}
}
