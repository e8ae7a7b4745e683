package docs

import (
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A block is a fenced block of code of a page.
type block struct {
	page     string // such as README.md
	section  string // the last heading of level two
	line     int
	language string
	text     string
}

// isProgram reports whether a block is a whole program: TestShellBlocks runs it with
// the commands of the page.
func (b block) isProgram() bool { return strings.HasPrefix(b.text, "package main\n") }

// pages returns the paths of README.md and of all pages in docs.
func pages(t *testing.T) []string {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil || len(all) < 10 {
		t.Fatalf("%d pages, %v", len(all), err)
	}
	top, err := filepath.Glob(filepath.Join(root, "*.md"))
	if err != nil || len(top) == 0 {
		t.Fatalf("%d pages, %v", len(top), err)
	}
	return append(top, all...)
}

// blocks returns the fenced blocks of all pages in that language.
func blocks(t *testing.T, language string) (all []block) {
	t.Helper()
	for _, path := range pages(t) {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var open *block
		section := ""
		for i, line := range strings.Split(string(b), "\n") {
			fence, isFence := strings.CutPrefix(line, "```")
			switch {
			case open == nil && isFence:
				open = &block{page: filepath.Base(path), section: section, line: i + 1, language: fence}
			case open == nil:
				if strings.HasPrefix(line, "## ") {
					section = line
				}
			case isFence:
				if open.language == language {
					all = append(all, *open)
				}
				open = nil
			default:
				open.text += line + "\n"
			}
		}
		if open != nil {
			t.Errorf("%s:%d: the block does not end", open.page, open.line)
		}
	}
	return all
}

var (
	spaces = regexp.MustCompile(`[ \t]+`)
	// A compiled copy calls endpoint or host where a page has an address that does not
	// exist, or that may be in use.
	calls = regexp.MustCompile(`(?:endpoint|host)\(("[^"]*")\)`)

	identifiers = regexp.MustCompile(`[A-Za-z]\w*`)
)

// plain returns Go code without the differences allowed between a page and a compiled
// copy: indentation, alignment and blank lines.
func plain(code string) string {
	var b strings.Builder
	b.WriteByte('\n')
	for line := range strings.Lines(calls.ReplaceAllString(code, "$1")) {
		if line = strings.TrimSpace(spaces.ReplaceAllString(line, " ")); line != "" {
			b.WriteString(line)
			b.WriteByte('\n')
		}
	}
	return b.String()
}

// executed returns the code that tests run: the programs in examples, the tests, the
// examples with output, and the functions that these call by name.
func executed(t *testing.T) (all []string) {
	t.Helper()
	programs, err := filepath.Glob(filepath.Join(root, "examples", "*", "main.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range programs {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, plain(string(b)))
	}
	folders, err := filepath.Glob(filepath.Join(root, "patterns", "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"internal/docs", "chp", "chp/admin", "chp/httpkv", "chp/recipes", "sockets", "sockets/metrics", "zmtp", "bench/peers"} {
		folders = append(folders, filepath.Join(root, name))
	}
	for _, folder := range folders {
		all = append(all, functions(t, folder)...)
	}
	return all
}

// functions returns the functions in the tests of a package that a test or an example
// with output runs, itself or by the name of a function of the package.
func functions(t *testing.T, folder string) (all []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	var run []string
	code := map[string]string{}
	for _, path := range files {
		source, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, path, source, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range doc.Examples(file) {
			if e.Output != "" || e.EmptyOutput {
				run = append(run, "Example"+e.Name)
			}
		}
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Body == nil || f.Recv != nil {
				continue
			}
			code[f.Name.Name] = string(source[fset.Position(f.Pos()).Offset:fset.Position(f.End()).Offset])
			if strings.HasPrefix(f.Name.Name, "Test") {
				run = append(run, f.Name.Name)
			}
		}
	}
	seen := map[string]bool{}
	for len(run) > 0 {
		name := run[len(run)-1]
		run = run[:len(run)-1]
		if seen[name] {
			continue
		}
		seen[name] = true
		all = append(all, plain(code[name]))
		for _, called := range identifiers.FindAllString(code[name], -1) {
			if code[called] != "" && !seen[called] {
				run = append(run, called)
			}
		}
	}
	return all
}

// TestGoBlocks: every block of Go on a page is part of code that is compiled and run: a
// program in examples, or a test or an example with output. White space may differ.
// A compiled copy may write endpoint("tcp://feed.example:5556") for an address.
func TestGoBlocks(t *testing.T) {
	t.Parallel()
	all := executed(t)
	programs := 0
	for _, b := range blocks(t, "go") {
		if b.isProgram() {
			programs++
			continue
		}
		code := plain(b.text)
		if !slices.ContainsFunc(all, func(program string) bool { return strings.Contains(program, code) }) {
			t.Errorf("%s:%d: no test runs this code:\n%s", b.page, b.line, b.text)
		}
	}
	if programs != 1 {
		t.Errorf("%d whole programs; TestShellBlocks runs one", programs)
	}
}

// TestLanguages: every block names its language, so that no test overlooks it.
func TestLanguages(t *testing.T) {
	t.Parallel()
	for _, b := range blocks(t, "") {
		t.Errorf("%s:%d: a block without a language; write text for what nobody runs", b.page, b.line)
	}
}

// TestCommandsAreInstalled: a page whose blocks run a command of this module says how to
// get it.
func TestCommandsAreInstalled(t *testing.T) {
	t.Parallel()
	checked := 0
	for _, b := range blocks(t, "sh") {
		text, err := os.ReadFile(filepath.Join(root, b.page))
		if err != nil {
			text, err = os.ReadFile(filepath.Join(root, "docs", b.page))
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"chp", "zdev"} {
			if !strings.Contains("\n"+b.text, "\n"+name+" ") {
				continue
			}
			checked++
			page := string(text)
			if !strings.Contains(page, "go install ./cmd/"+name) && !strings.Contains(page, "go build -o $dir ./cmd/...") {
				t.Errorf("%s:%d: the page does not say how to get %s", b.page, b.line, name)
			}
		}
	}
	if checked < 8 {
		t.Errorf("found only %d blocks with commands", checked)
	}
}
