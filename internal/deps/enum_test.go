package deps

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestEnumerationsMarshalAsText: in public packages, each exported type of numbers that has
// exported constants has String, and MarshalText with the same text, so that logs in JSON
// have names and not numbers.
func TestEnumerationsMarshalAsText(t *testing.T) {
	t.Parallel()
	checked := 0
	for _, root := range []string{"zmtp", "sockets", "chp", "patterns"} {
		err := filepath.WalkDir(filepath.Join("..", "..", root), func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				checked += checkEnumerations(t, path)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if checked < 15 {
		t.Errorf("found only %d enumerations", checked)
	}
}

// numeric are the types that are sets of flags, or numbers themselves, and only options;
// and the steps of a decoder (Kind of zmtp), which no log has.
var numeric = map[string]bool{"Notify": true, "ReconnectStop": true, "KeepAlive": true, "Model": true, "Kind": true}

// checkEnumerations checks the package in a folder, and returns the number of its
// enumerations.
func checkEnumerations(t *testing.T, folder string) (n int) {
	t.Helper()
	files, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	numbers, methods, constants := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, f := range files {
		if !strings.HasSuffix(f.Name(), ".go") || strings.HasSuffix(f.Name(), "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(folder, f.Name()), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		if file.Name.Name == "main" {
			return 0
		}
		for _, decl := range file.Decls {
			switch decl := decl.(type) {
			case *ast.FuncDecl:
				if decl.Recv != nil {
					if of, ok := decl.Recv.List[0].Type.(*ast.Ident); ok {
						methods[of.Name+"."+decl.Name.Name] = true
					}
				}
			case *ast.GenDecl:
				for _, s := range decl.Specs {
					switch s := s.(type) {
					case *ast.TypeSpec:
						if of, ok := s.Type.(*ast.Ident); ok && s.Name.IsExported() && (strings.HasPrefix(of.Name, "int") || strings.HasPrefix(of.Name, "uint")) {
							numbers[s.Name.Name] = true
						}
					case *ast.ValueSpec:
						if of, ok := s.Type.(*ast.Ident); ok && decl.Tok == token.CONST {
							for _, name := range s.Names {
								constants[of.Name] = constants[of.Name] || name.IsExported()
							}
						}
					}
				}
			}
		}
	}
	for name := range numbers {
		if !constants[name] || numeric[name] {
			continue
		}
		n++
		for _, method := range []string{"String", "MarshalText"} {
			if !methods[name+"."+method] {
				t.Errorf("%s: %s has no method %s", folder, name, method)
			}
		}
	}
	return n
}
