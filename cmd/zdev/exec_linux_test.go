package main

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"clustermap/internal/testenv"
	"clustermap/patterns/majordomo"
)

// TestCommandEndsWithKilledWorker: COMMAND ends if its worker is killed with SIGKILL.
func TestCommandEndsWithKilledWorker(t *testing.T) {
	t.Parallel()
	_, at := startBroker(t)
	file := filepath.Join(t.TempDir(), "pid")
	worker := startWorker(t, at, "sleep", "--", "sh", "-c", "echo $$ > "+file+".new; mv "+file+".new "+file+"; exec sleep 600")
	client, err := majordomo.NewClient(majordomo.ClientOptions{Broker: at})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = client.Request(t.Context(), "sleep", []byte("x"))
	}()
	defer func() {
		client.Close()
		<-ended
	}()
	var pid int
	testenv.Eventually(t, "the command runs", func() bool {
		text, _ := os.ReadFile(file)
		pid, _ = strconv.Atoi(strings.TrimSpace(string(text)))
		return pid > 0
	})
	defer func() {
		if t.Failed() {
			if p, err := os.FindProcess(pid); err == nil {
				_ = p.Kill()
			}
		}
	}()
	if err := worker.Cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "the command ends", func() bool { return !alive(pid) })
}
