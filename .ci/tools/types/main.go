// Command types checks that all packages of the module in the current folder, and their
// tests, are right Go for other systems and machines: that their files for them are
// complete, that names exist there, and that constants fit.
//
//	types GOOS/GOARCH...
//
// It finds what go vet and go test -c would not compile, but in seconds, because it reads
// only declarations of the packages that others need, where they compile and link.
package main

import (
	"fmt"
	"go/types"
	"os"
	"strings"

	"golang.org/x/tools/go/packages"
)

func main() {
	failed := false
	for _, target := range os.Args[1:] {
		system, machine, _ := strings.Cut(target, "/")
		tests, problems, err := check(".", system, machine)
		if err != nil {
			problems = append(problems, err.Error())
		}
		for _, p := range problems {
			fmt.Println(p)
		}
		failed = failed || len(problems) > 0
		fmt.Printf("%s: %d packages with tests, %d errors\n", target, tests, len(problems))
	}
	if failed {
		os.Exit(1)
	}
}

// check returns how many packages have tests for a target, and the errors in all packages.
func check(dir, system, machine string) (tests int, problems []string, err error) {
	roots, err := packages.Load(&packages.Config{
		Mode: packages.NeedName | packages.NeedImports | packages.NeedDeps | packages.NeedFiles | packages.NeedCompiledGoFiles |
			packages.NeedSyntax | packages.NeedTypes | packages.NeedTypesInfo | packages.NeedTypesSizes | packages.NeedModule | packages.NeedForTest,
		Dir:   dir,
		Env:   append(os.Environ(), "GOOS="+system, "GOARCH="+machine, "CGO_ENABLED=0"),
		Tests: true,
	}, "./...")
	if err != nil {
		return 0, nil, err
	}
	seen := map[string]bool{}
	for _, p := range roots {
		if p.ForTest != "" && p.Types != (*types.Package)(nil) {
			tests++
		}
		for _, e := range p.Errors {
			if text := e.Error(); !seen[text] {
				seen[text] = true
				problems = append(problems, text)
			}
		}
	}
	return tests, problems, nil
}
