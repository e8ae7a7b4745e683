package main

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"clustermap/internal/command"
	"clustermap/internal/commandtest"
	"clustermap/internal/loopback"
	"clustermap/internal/testenv"
	"clustermap/sockets"
	"clustermap/zmtp"
)

// startFreelance starts a server at an address of its own: when it has ended, no other program listens at its port.
func startFreelance(t testing.TB, args ...string) (p *commandtest.Process, endpoint string) {
	t.Helper()
	p = zdev.Start(t, append([]string{"freelance-serve", "--bind", "tcp://" + loopback.Own() + ":*"}, args...)...)
	return p, p.Ready()[0]
}

// A server that echoes, and a call: the reply as text, as bytes, as JSON.
func TestFreelanceEcho(t *testing.T) {
	t.Parallel()
	p, endpoint := startFreelance(t, "--echo")
	if out := zdev.Must(t, "freelance-call", "--server", endpoint, "hello"); out != "hello\n" {
		t.Errorf("%q", out)
	}
	if out := zdev.MustInput(t, "a\x00\n", "freelance-call", "--server", endpoint, "--raw", "-"); out != "a\x00\n" {
		t.Errorf("%q", out)
	}
	o := commandtest.Object(t, zdev.Must(t, "freelance-call", "--server", endpoint, "--json", "hello"))
	if frames, _ := o["frames"].([]any); o["server"] != endpoint || len(frames) != 1 || frames[0] != "hello" {
		t.Errorf("%v", o)
	}
	o = commandtest.Object(t, zdev.Must(t, "freelance-call", "--server", endpoint, "--json", "--count", "500", "--pipeline", "50", "hello"))
	if o["requests"] != 500.0 {
		t.Errorf("%v", o)
	}
	endsWell(t, p)
}

// A command after --, its failures, and their exit codes.
func TestFreelanceCommand(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("needs sh")
	}
	p, endpoint := startFreelance(t, "--", "sh", "-c", `read line; case $line in fail) echo the lamp is broken >&2; exit 7;; esac; echo "you said $line"`)
	if out := zdev.Must(t, "freelance-call", "--server", endpoint, "--raw", "hello"); out != "you said hello\n" {
		t.Errorf("%q", out)
	}
	zdev.Try(t, "freelance-call", "--server", endpoint, "fail").Expect(t, command.ExitRefused, endpoint+": exit status 7: the lamp is broken")
	endsWell(t, p)
}

// startHeld starts a server and sends a request with the name of a file. The command
// creates that file, and ends when the file NAME.wait is removed.
func startHeld(t *testing.T, drain string) (server, call *commandtest.Process, endpoint, file string) {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("needs sh")
	}
	server, endpoint = startFreelance(t, "--drain", drain, "--", "sh", "-c",
		"read file; echo begun > $file; while [ -e $file.wait ]; do sleep 0.02; done; echo done")
	file = filepath.Join(t.TempDir(), "begun")
	if err := os.WriteFile(file+".wait", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	call = zdev.Start(t, "freelance-call", "--server", endpoint, "--timeout", "1m", file)
	testenv.Eventually(t, "the command has begun", func() bool { return exists(file) })
	return server, call, endpoint, file
}

// After a signal a server finishes requests in progress, and refuses new ones.
func TestFreelanceDrain(t *testing.T) {
	t.Parallel()
	server, call, endpoint, file := startHeld(t, "1m")
	server.Signal(syscall.SIGTERM)
	testenv.Eventually(t, "a new request is refused", func() bool {
		return zdev.Try(t, "freelance-call", "--server", endpoint, file+".other").Code == command.ExitRefused
	})
	if err := os.Remove(file + ".wait"); err != nil {
		t.Fatal(err)
	}
	if line := call.Line(); line != "done" {
		t.Errorf("reply %q", line)
	}
	if server.Wait() != command.ExitDone {
		t.Errorf("exit code %d: %s", server.Wait(), server.Stderr.String())
	}
}

// A command that takes longer than --drain is killed.
func TestFreelanceDrainEnds(t *testing.T) {
	t.Parallel()
	server, _, _, _ := startHeld(t, "10ms")
	endsWell(t, server)
}

// With CURVE the key is printed before the server is ready, and calls need it.
func TestFreelanceCurve(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	server := strings.TrimSpace(zdev.Must(t, "keygen", "--out", dir+"/server.key"))
	zdev.Must(t, "keygen", "--out", dir+"/client.key")
	p, endpoint := startFreelance(t, "--echo", "--curve-key", dir+"/server.key", "--curve-allow", dir+"/client.key")
	if out := zdev.Must(t, "freelance-call", "--server", endpoint, "--curve-key", dir+"/client.key", "--curve-server-key", server, "hello"); out != "hello\n" {
		t.Errorf("%q", out)
	}
	endsWell(t, p)
}

// A server that listens on all addresses has the identity in --advertise.
func TestFreelanceAdvertise(t *testing.T) {
	t.Parallel()
	p := zdev.Start(t, "freelance-serve", "--bind", "tcp://*:*", "--advertise", "tcp://server1.example:5555", "--echo")
	at := p.Ready()
	port := at[0][strings.LastIndex(at[0], ":"):]
	identity := make(chan string, 1)
	connected(t, sockets.NewRouter, sockets.Options{Monitor: func(e sockets.Event) {
		if e.Kind == sockets.EventHandshakeSucceeded {
			id, _ := e.Peer.Property(zmtp.PropertyIdentity)
			identity <- id
		}
	}}, "tcp://127.0.0.1"+port)
	if got := <-identity; got != "tcp://server1.example:5555" {
		t.Errorf("identity %q", got)
	}
	endsWell(t, p)
}

func TestFreelanceUsage(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ args, want string }{
		{"freelance-serve --echo", "give --bind"},
		{"freelance-serve --bind tcp://127.0.0.1:*", "give either --echo or a command after --"},
		{"freelance-serve --bind tcp://127.0.0.1:* --echo -- cat", "give either --echo or a command after --"},
		{"freelance-serve --bind tcp://127.0.0.1:* cat", "the command belongs after --"},
		{"freelance-serve --bind tcp://127.0.0.1:* --", "give a command after --"},
		{"freelance-serve --bind tcp://127.0.0.1:* -- no-such-command-here", "cannot run no-such-command-here"},
		{"freelance-serve --bind tcp://*:* --echo", "--advertise is required"},
		{"freelance-serve --bind nonsense --echo", "--bind"},
		{"freelance-serve --bind tcp://127.0.0.1:* --concurrency 0 --echo", "must be above 0"},
		{"freelance-serve --bind tcp://127.0.0.1:* --drain -1s --echo", "--drain"},
		{"freelance-call x", "give --server"},
		{"freelance-call --server tcp://127.0.0.1:1", "takes 1 argument"},
		{"freelance-call --server nonsense x", `--server "nonsense"`},
		{"freelance-call --server tcp://127.0.0.1:1 --timeout 0s x", "--timeout must be positive"},
		{"freelance-call --server tcp://127.0.0.1:1 --count 0 x", "--count and --pipeline must be above 0"},
		{"freelance-call --server tcp://127.0.0.1:1 --json --raw x", "--json and --raw exclude each other"},
		{"freelance-call --server tcp://127.0.0.1:1 --curve-key x x", "--curve-server-key"},
	} {
		t.Run(c.args, func(t *testing.T) {
			t.Parallel()
			zdev.Try(t, strings.Fields(c.args)...).Expect(t, command.ExitUsage, c.want)
		})
	}
	_, endpoint := startFreelance(t, "--echo")
	zdev.Try(t, "freelance-serve", "--bind", endpoint, "--echo").Expect(t, command.ExitRefused, "--bind "+endpoint+": the address is in use")
}
