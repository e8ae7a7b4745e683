package deps

import (
	"bytes"
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestSecretsAreNotPrinted: package fmt shows a secret key or a password of no exported
// type of the public packages. It prints unexported fields without asking their types, and
// so it does for what a pointer in a field points to, if the verb does not fit a pointer.
// Types with a secret behind such a field have a Format method.
func TestSecretsAreNotPrinted(t *testing.T) {
	t.Parallel()
	list := exec.Command("go", "list", "-export", "-deps", "-f", "{{.ImportPath}}\t{{.Export}}", "./zmtp", "./sockets", "./chp/...", "./patterns/...")
	list.Dir = filepath.FromSlash(root)
	out, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	exports := map[string]string{}
	for line := range strings.Lines(string(out)) {
		path, file, _ := strings.Cut(strings.TrimSpace(line), "\t")
		exports[path] = file
	}
	from := importer.ForCompiler(token.NewFileSet(), "gc", func(path string) (io.ReadCloser, error) {
		text, err := os.ReadFile(exports[path])
		return io.NopCloser(bytes.NewReader(text)), err
	})
	checked, secrets := 0, 0
	for path := range exports {
		if !strings.HasPrefix(path, module+"/") || strings.Contains(path, "/internal/") {
			continue
		}
		pkg, err := from.Import(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range pkg.Scope().Names() {
			object, ok := pkg.Scope().Lookup(name).(*types.TypeName)
			if !ok || !object.Exported() {
				continue
			}
			checked++
			p := printed{}
			if _, isStruct := object.Type().Underlying().(*types.Struct); isStruct && p.reaches(object.Type(), true) {
				secrets++
			}
			if field := p.shows(object.Type()); field != "" {
				t.Errorf("%s.%s: printing it shows %s; it needs a Format method", path, name, field)
			}
		}
	}
	if checked < 150 || secrets < 5 {
		t.Errorf("checked only %d types, of which %d have secrets", checked, secrets)
	}
}

// printed follows what package fmt prints of a type.
type printed map[types.Type]bool // visited

// formats reports whether a value of the type prints itself.
func formats(t types.Type) bool {
	for selection := range types.NewMethodSet(t).Methods() {
		if selection.Obj().Name() == "Format" {
			return true
		}
	}
	return false
}

// shows returns the field in which package fmt shows a secret of a value of the type, or of
// a pointer to it if that is what programs have. It returns "" if it shows none.
func (p printed) shows(t types.Type) string {
	s, ok := t.Underlying().(*types.Struct)
	if !ok || formats(t) || formats(types.NewPointer(t)) && !isOptions(t) {
		return ""
	}
	for f := range s.Fields() {
		pointer, isPointer := f.Type().Underlying().(*types.Pointer)
		switch {
		case !f.Exported() || isSecretText(f):
			if (printed{}).reaches(f.Type(), true) || isSecretText(f) {
				return f.Name()
			}
		case isPointer && !formats(f.Type()) && (printed{}).reaches(pointer.Elem(), false):
			return f.Name()
		case !isPointer && !p[f.Type()]:
			p[f.Type()] = true
			if inner := p.shows(f.Type()); inner != "" {
				return f.Name() + "." + inner
			}
		}
	}
	return ""
}

func isOptions(t types.Type) bool {
	name := t.String()
	return strings.HasSuffix(name, "Options") || strings.HasSuffix(name, "Config")
}

func isSecretText(f *types.Var) bool {
	basic, ok := f.Type().Underlying().(*types.Basic)
	return ok && basic.Kind() == types.String && strings.HasSuffix(strings.ToLower(f.Name()), "password")
}

// reaches reports whether the fields of a type have a secret, at any depth; a pointer is
// followed if hop is set.
func (p printed) reaches(t types.Type, hop bool) bool {
	if p[t] {
		return false
	}
	p[t] = true
	if strings.HasSuffix(t.String(), "/zmtp.SecretKey") {
		return true
	}
	switch u := t.Underlying().(type) {
	case *types.Pointer:
		return hop && p.reaches(u.Elem(), false)
	case *types.Slice:
		return p.reaches(u.Elem(), hop)
	case *types.Array:
		return p.reaches(u.Elem(), hop)
	case *types.Map:
		return p.reaches(u.Key(), hop) || p.reaches(u.Elem(), hop)
	case *types.Struct:
		for f := range u.Fields() {
			if isSecretText(f) || p.reaches(f.Type(), hop) {
				return true
			}
		}
	}
	return false
}
