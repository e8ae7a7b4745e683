package testenv

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"
)

// launchVariable makes TestLaunch the process that launches another one, and is killed.
const launchVariable = "CLUSTERMAP_TEST_LAUNCH"

// TestLaunch: a process that was launched ends with the one that launched it, also if
// that is killed.
func TestLaunch(t *testing.T) {
	t.Parallel()
	if os.Getenv(launchVariable) != "" {
		cmd := exec.Command("sleep", "1000")
		cmd.Stdout = os.Stdout
		Must(t, Launch(cmd))
		fmt.Println("launched")
		select {}
	}
	out, in, err := os.Pipe()
	Must(t, err)
	defer out.Close()
	cmd := exec.CommandContext(Context(t), os.Args[0], "-test.run=^TestLaunch$")
	cmd.Env, cmd.Stdout = append(os.Environ(), launchVariable+"=1"), in
	Must(t, cmd.Start())
	in.Close()
	line := make([]byte, len("launched\n"))
	_, err = io.ReadFull(out, line)
	Must(t, err)
	Must(t, cmd.Process.Kill())
	cmd.Wait()
	if rest, err := io.ReadAll(out); err != nil || len(rest) > 0 { // ends with the last process that has it
		t.Errorf("%q, %v", rest, err)
	}
}
