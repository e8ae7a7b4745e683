package deps

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
	"unicode"
)

// TestConstantNames: in public packages, each exported constant of a named type begins
// with a word of the type's name, such as PolicyDrop or EventConnected (EventKind).
func TestConstantNames(t *testing.T) {
	t.Parallel()
	checked := 0
	for _, root := range []string{"zmtp", "sockets", "chp", "patterns"} {
		err := filepath.WalkDir(filepath.Join("..", "..", root), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			for _, decl := range file.Decls {
				if g, ok := decl.(*ast.GenDecl); ok && g.Tok == token.CONST {
					checked += checkConstants(t, path, g)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if checked < 80 {
		t.Errorf("found only %d constants", checked)
	}
}

// checkConstants checks one const declaration and returns the number of constants that
// have a type of the package.
func checkConstants(t *testing.T, path string, g *ast.GenDecl) (n int) {
	t.Helper()
	typ := ""
	for _, s := range g.Specs {
		spec := s.(*ast.ValueSpec)
		if id, ok := spec.Type.(*ast.Ident); ok {
			typ = id.Name
		} else if spec.Type != nil || len(spec.Values) > 0 {
			typ = ""
		}
		if !ast.IsExported(typ) {
			continue
		}
		for _, name := range spec.Names {
			if !name.IsExported() {
				continue
			}
			n++
			fits := false
			for _, word := range words(typ) {
				fits = fits || strings.HasPrefix(name.Name, word)
			}
			if !fits {
				t.Errorf("%s: %s, of type %s, begins with no word of the type's name", path, name.Name, typ)
			}
		}
	}
	return n
}

// words splits a name at its capital letters.
func words(name string) (all []string) {
	start := 0
	for i, r := range name {
		if i > start && unicode.IsUpper(r) {
			all = append(all, name[start:i])
			start = i
		}
	}
	return append(all, name[start:])
}
