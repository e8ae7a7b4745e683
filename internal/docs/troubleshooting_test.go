package docs

import (
	"go/ast"
	"go/constant"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// verbs are the places in a format for what differs.
var verbs = regexp.MustCompile(`%[-+# 0]*[0-9.]*[a-zA-Z]`)

// literals returns the texts in the code of the libraries and commands, with … for what
// differs. A sum of texts and other values is one text.
func literals(t *testing.T) (all []string) {
	t.Helper()
	var text func(e ast.Expr) string
	text = func(e ast.Expr) string {
		switch e := e.(type) {
		case *ast.BasicLit:
			if e.Kind == token.STRING {
				return constant.StringVal(constant.MakeFromLiteral(e.Value, token.STRING, 0))
			}
		case *ast.BinaryExpr:
			if e.Op == token.ADD {
				return text(e.X) + text(e.Y)
			}
		}
		return "…"
	}
	for _, folder := range []string{"chp", "cmd", "internal", "patterns", "sockets", "zmtp"} {
		err := filepath.WalkDir(filepath.Join(root, folder), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				e, ok := n.(ast.Expr)
				if !ok {
					return true
				}
				if s := text(e); len(s) > len("…") {
					all = append(all, verbs.ReplaceAllString(s, "…"))
					return false // its parts are in it
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// TestTroubleshooting: the texts in the tables of TROUBLESHOOTING.md are those of the code.
func TestTroubleshooting(t *testing.T) {
	t.Parallel()
	all := literals(t)
	checked := 0
	for _, row := range rows(page(t, "TROUBLESHOOTING.md")) {
		quoted := spans(row[0])
		if len(quoted) == 0 {
			t.Errorf("no quoted text in the row %q", row)
		}
		for _, q := range quoted {
			checked++
			if !slices.ContainsFunc(all, func(s string) bool { return strings.Contains(s, q) }) {
				t.Errorf("no text in the code contains %q", q)
			}
		}
	}
	if checked < 50 {
		t.Errorf("found only %d texts", checked)
	}
}
