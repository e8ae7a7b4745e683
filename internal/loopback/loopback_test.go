package loopback

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
)

// childVariable makes the test binary print an address and wait until its input ends.
const childVariable = "CLUSTERMAP_LOOPBACK_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childVariable) != "" {
		fmt.Println(Own())
		_, _ = os.Stdin.Read(make([]byte, 1))
		return
	}
	os.Exit(m.Run())
}

func TestOwn(t *testing.T) {
	seen := map[string]bool{}
	for range 1000 {
		host := Own()
		if ip := net.ParseIP(host); ip == nil || !ip.IsLoopback() {
			t.Fatalf("%q is no loopback address", host)
		}
		if seen[host] && runtime.GOOS == "linux" {
			t.Fatalf("%s comes twice", host)
		}
		seen[host] = true
	}
	l, err := net.Listen("tcp", net.JoinHostPort(Own(), "0"))
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
}

// TestProcesses: processes that run at once have blocks of their own, though they look for
// one from the same number on.
func TestProcesses(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("there is one address")
	}
	Own()
	before, left := own.block, own.left
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childVariable+"=1")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var theirs string
	if _, err := fmt.Fscan(out, &theirs); err != nil {
		t.Error(err)
	}
	// Their block is the next one that this process would take.
	var a, b, c int
	if _, err := fmt.Sscanf(strings.TrimSpace(theirs), "127.%d.%d.%d", &a, &b, &c); err != nil {
		t.Errorf("%q: %v", theirs, err)
	}
	own.block, own.left = (a-1)*numbers+b-2, 0
	if ours := Own(); ours == theirs {
		t.Errorf("two processes have %s", ours)
	}
	own.block, own.left = before, left
	in.Close()
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}
