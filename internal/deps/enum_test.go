package deps

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestEnumerationsMarshalAsText: in public packages, each exported type of numbers that has
// exported constants has String, and MarshalText with the same text, so that logs in JSON
// have names and not numbers.
func TestEnumerationsMarshalAsText(t *testing.T) {
	t.Parallel()
	checked := 0
	eachPublic(t, func(folder string, files []*ast.File) { checked += checkEnumerations(t, folder, files) })
	if checked < 15 {
		t.Errorf("found only %d enumerations", checked)
	}
}

// eachPublic calls fn with the files of each public package, without tests and commands,
// and of those whose types are public by another name.
func eachPublic(t *testing.T, fn func(folder string, files []*ast.File)) {
	t.Helper()
	for _, under := range []string{"zmtp", "sockets", "chp", "patterns", "internal/link"} {
		err := filepath.WalkDir(filepath.Join(root, under), func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.IsDir() {
				return err
			}
			if strings.HasPrefix(path, filepath.Join(root, "chp", "durable", "internal")) {
				return filepath.SkipDir // nothing of it reaches users
			}
			names, err := filepath.Glob(filepath.Join(path, "*.go"))
			var files []*ast.File
			for _, name := range names {
				if strings.HasSuffix(name, "_test.go") {
					continue
				}
				file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
				if err != nil {
					return err
				}
				if file.Name.Name != "main" {
					files = append(files, file)
				}
			}
			fn(path, files)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestErrorsMarshalAsText: in public packages, each exported struct with an exported field
// that is an error has MarshalText or MarshalJSON. Without it the error is {} in JSON.
func TestErrorsMarshalAsText(t *testing.T) {
	t.Parallel()
	checked := 0
	eachPublic(t, func(folder string, files []*ast.File) {
		methods, faulty := map[string]bool{}, map[string]bool{}
		for _, file := range files {
			ast.Inspect(file, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.FuncDecl:
					if n.Recv != nil && strings.HasPrefix(n.Name.Name, "Marshal") {
						of := n.Recv.List[0].Type
						if pointer, ok := of.(*ast.StarExpr); ok {
							of = pointer.X
						}
						if of, ok := of.(*ast.Ident); ok {
							methods[of.Name] = true
						}
					}
					return false
				case *ast.TypeSpec:
					if s, ok := n.Type.(*ast.StructType); ok && n.Name.IsExported() && showsError(s) {
						faulty[n.Name.Name] = true
					}
				}
				return true
			})
		}
		for name := range faulty {
			checked++
			if !methods[name] {
				t.Errorf("%s: %s has an error and no method MarshalText or MarshalJSON", folder, name)
			}
		}
	})
	if checked < 15 {
		t.Errorf("found only %d structs with errors", checked)
	}
}

// showsError reports whether a struct has an exported field that is an error.
func showsError(s *ast.StructType) bool {
	for _, f := range s.Fields.List {
		if of, ok := f.Type.(*ast.Ident); ok && of.Name == "error" && slices.ContainsFunc(f.Names, (*ast.Ident).IsExported) {
			return true
		}
	}
	return false
}

// numeric are the types that are sets of flags, or numbers themselves, and only options;
// and the steps of a decoder (Kind of zmtp), which no log has.
var numeric = map[string]bool{"Notify": true, "ReconnectStop": true, "KeepAlive": true, "Model": true, "Kind": true}

// checkEnumerations checks a package, and returns the number of its enumerations.
func checkEnumerations(t *testing.T, folder string, files []*ast.File) (n int) {
	t.Helper()
	numbers, methods, constants := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, file := range files {
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
