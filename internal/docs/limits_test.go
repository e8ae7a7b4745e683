package docs

import (
	"errors"
	"fmt"
	"go/ast"
	"go/build"
	"go/constant"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"clustermap/internal/version"
)

// TestLimitConstants: LIMITS.md has every constant of every limits.go, with its value, and nothing
// else; and limits and time constants are in a limits.go, if their package has several.
func TestLimitConstants(t *testing.T) {
	t.Parallel()
	listed := map[string]bool{}
	all := limits(t)
	for _, row := range rows(page(t, "LIMITS.md")) {
		names := spans(row[0])
		if len(names) == 0 || !strings.Contains(names[0], ".") {
			continue // of the table of options
		}
		values := strings.Split(row[1], ", ")
		if len(values) != len(names) {
			t.Errorf("%s: %d names, and %d values", row[0], len(names), len(values))
			continue
		}
		for i, name := range names {
			value, exists := all[name]
			if !exists {
				t.Errorf("%s is in no limits.go", name)
			} else if want := number(t, values[i]); !constant.Compare(value, token.EQL, want) {
				t.Errorf("%s is %s, and on the page %s", name, value, values[i])
			}
			if listed[name] {
				t.Errorf("%s is there twice", name)
			}
			listed[name] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if !listed[name] {
			t.Errorf("%s (%s) is not on the page", name, all[name])
		}
	}
	if len(all) < 200 {
		t.Errorf("found only %d constants", len(all))
	}
}

// TestServerDefaults: the table of a server's bounds has the defaults of its options, by the
// constants that these are, and flags that chp serve has.
func TestServerDefaults(t *testing.T) {
	t.Parallel()
	all := limits(t)
	source, err := os.ReadFile(filepath.Join(root, "cmd", "chp", "serve.go"))
	if err != nil {
		t.Fatal(err)
	}
	http, err := os.ReadFile(filepath.Join(root, "cmd", "chp", "http.go"))
	if err != nil {
		t.Fatal(err)
	}
	checked := 0
	for _, row := range rows(section(t, page(t, "LIMITS.md"), "## A server at a glance")) {
		for _, name := range spans(row[2]) {
			checked++
			if value, exists := all[name]; !exists {
				t.Errorf("%s is in no limits.go", name)
			} else if want := number(t, row[1]); !constant.Compare(value, token.EQL, want) {
				t.Errorf("%s: %s is %s, and on the page %s", row[0], name, value, row[1])
			}
		}
		for _, flag := range spans(row[3]) {
			if name := strings.TrimPrefix(flag, "--"); !strings.Contains(string(source)+string(http), strconv.Quote(name)) {
				t.Errorf("%s: chp serve has no flag %s", row[0], flag)
			}
		}
		if row[0] == "connections to the port of HTTP" && !strings.Contains(string(http), "httpConnections = "+row[1]+"\n") {
			t.Errorf("the port of HTTP has not %s connections", row[1])
		}
	}
	if checked < 8 {
		t.Errorf("found only %d defaults", checked)
	}
}

// limits returns the constants of all files limits.go, by package and name, and reports an
// error for what looks like one and is elsewhere.
func limits(t *testing.T) map[string]constant.Value {
	t.Helper()
	all := map[string]constant.Value{}
	im := &importer{packages: map[string]*types.Package{}}
	for _, under := range []string{"zmtp", "sockets", "chp", "patterns", "internal"} {
		err := filepath.WalkDir(filepath.Join(root, under), func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.IsDir() {
				return err
			}
			folder := strings.TrimPrefix(filepath.ToSlash(path), root+"/")
			if d.Name() == "testdata" || slices.Contains(programs, folder) {
				return fs.SkipDir
			}
			pkg, err := im.Import(version.Module + "/" + folder)
			if none := (*build.NoGoError)(nil); errors.As(err, &none) {
				return nil
			} else if err != nil {
				return err
			}
			var elsewhere []string
			for _, name := range pkg.Scope().Names() {
				c, ok := pkg.Scope().Lookup(name).(*types.Const)
				if !ok || c.Val().Kind() == constant.Unknown {
					continue
				}
				if at := im.Position(c.Pos()); filepath.Base(at.Filename) == "limits.go" {
					all[pkg.Name()+"."+name] = c.Val()
				} else if limiting(c) {
					elsewhere = append(elsewhere, fmt.Sprintf("%s: %s", at, name))
				}
			}
			if _, err = os.Stat(filepath.Join(path, "limits.go")); len(elsewhere) > 1 || len(elsewhere) == 1 && err == nil {
				t.Errorf("these look like limits or times, and are not in limits.go:\n%s", strings.Join(elsewhere, "\n"))
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// programs are the folders of what runs in tests and for measurements only.
var programs = []string{
	"internal/bench", "internal/command", "internal/commandtest", "internal/chptest", "internal/interop", "internal/loopback", "internal/pace",
	"internal/testenv", "internal/tmpfs", "internal/mutate", "internal/packaging",
}

var limitName = regexp.MustCompile(`^([mM]ax|[dD]efault|most|least|keep)([A-Z]|$)`)

// limiting reports whether a constant looks like a limit or a time: it is a duration that is
// no special value, or a number with such a name.
func limiting(c *types.Const) bool {
	if c.Val().Kind() != constant.Int {
		return false
	}
	if named, ok := c.Type().(*types.Named); ok {
		n, _ := constant.Int64Val(c.Val())
		return named.Obj().Name() == "Duration" && n > 0 && n < math.MaxInt64
	}
	return limitName.MatchString(c.Name())
}

var units = map[string]int64{
	"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30,
	"µs": int64(time.Microsecond), "ms": int64(time.Millisecond), "s": int64(time.Second), "min": int64(time.Minute), "h": int64(time.Hour), "d": int64(24 * time.Hour),
}

// number returns the value of a text such as "64 MiB", "1,024", "2.5 s", or "2^40 - 1".
func number(t *testing.T, text string) constant.Value {
	t.Helper()
	if base, rest, power := strings.Cut(text, "^"); power {
		if exponent, minus, found := strings.Cut(rest, " - "); found {
			return constant.BinaryOp(number(t, base+"^"+exponent), token.SUB, number(t, minus))
		}
		n, err := strconv.ParseUint(rest, 10, 8)
		if err != nil || base != "2" {
			t.Errorf("%q is no power of 2", text)
		}
		return constant.Shift(constant.MakeInt64(1), token.SHL, uint(n))
	}
	digits, unit, _ := strings.Cut(text, " ")
	factor, known := units[unit]
	value := constant.MakeFromLiteral(strings.ReplaceAll(digits, ",", ""), token.FLOAT, 0)
	if !known || value.Kind() == constant.Unknown {
		t.Errorf("%q is no number with a unit", text)
		return constant.MakeInt64(-1)
	}
	return constant.BinaryOp(value, token.MUL, constant.MakeInt64(factor))
}

// importer computes the constants of packages. It imports this module's packages from their
// source, and has of the standard library what constants need; other errors do not matter.
type importer struct {
	token.FileSet
	packages map[string]*types.Package
}

func (im *importer) Import(path string) (*types.Package, error) {
	if pkg := im.packages[path]; pkg != nil {
		return pkg, nil
	}
	folder, own := strings.CutPrefix(path, version.Module+"/")
	if !own {
		im.packages[path] = standard(path)
		return im.packages[path], nil
	}
	on := build.Default
	on.GOOS, on.GOARCH = "linux", "amd64"
	dir, err := on.ImportDir(filepath.Join(root, folder), 0)
	if err != nil {
		return nil, err
	}
	var files []*ast.File
	for _, name := range dir.GoFiles {
		file, err := parser.ParseFile(&im.FileSet, filepath.Join(dir.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		files = append(files, file)
	}
	check := types.Config{Importer: im, Error: func(error) {}, IgnoreFuncBodies: true}
	im.packages[path], _ = check.Check(path, &im.FileSet, files, nil)
	return im.packages[path], nil
}

// standard returns a package of another module with the constants of packages math and time.
func standard(path string) *types.Package {
	pkg := types.NewPackage(path, filepath.Base(path))
	add := func(name string, typ types.Type, value int64) {
		pkg.Scope().Insert(types.NewConst(token.NoPos, pkg, name, typ, constant.MakeInt64(value)))
	}
	switch path {
	case "math":
		for _, name := range []string{"MaxInt", "MaxInt64"} {
			add(name, types.Typ[types.UntypedInt], math.MaxInt64)
		}
		add("MinInt64", types.Typ[types.UntypedInt], math.MinInt64)
		add("MaxInt32", types.Typ[types.UntypedInt], math.MaxInt32)
	case "time":
		name := types.NewTypeName(token.NoPos, pkg, "Duration", nil)
		duration := types.NewNamed(name, types.Typ[types.Int64], nil)
		pkg.Scope().Insert(name)
		for name, d := range map[string]time.Duration{
			"Microsecond": time.Microsecond, "Millisecond": time.Millisecond, "Second": time.Second, "Minute": time.Minute, "Hour": time.Hour,
		} {
			add(name, duration, int64(d))
		}
	}
	pkg.MarkComplete()
	return pkg
}
