package results

import (
	"cmp"
	"encoding/json"
	"iter"
	"os"
	"os/exec"
	"runtime"
	"strings"

	"clustermap/internal/bench/figures"
)

// Turns returns the order in which n systems take turns in a round, which is the opposite in every second
// one.
func Turns(round, n int) iter.Seq[int] {
	return func(yield func(int) bool) {
		for i := range n {
			if round%2 == 1 {
				i = n - 1 - i
			}
			if !yield(i) {
				return
			}
		}
	}
}

// Write writes a result to a file.
func Write(file string, result any) error {
	text, err := json.MarshalIndent(result, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o666)
}

// ThisMachine describes the machine.
func ThisMachine() Machine {
	m := Machine{Processor: figures.Processor(), Cores: runtime.NumCPU(), Go: runtime.Version()}
	release, _ := exec.Command("uname", "-sr").Output() // without it, the name of the system alone
	m.System = cmp.Or(strings.TrimSpace(string(release)), runtime.GOOS) + " " + runtime.GOARCH
	return m
}
