package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"clustermap/internal/commandtest"
	"clustermap/internal/testenv"
	"clustermap/patterns/freelance"
	"clustermap/sockets"

	"github.com/spf13/cobra"
)

// hostileBroker is a broker whose replies and requests are hostile text: errors if failing
// is set.
func hostileBroker(t *testing.T, failing bool) (endpoint string) {
	t.Helper()
	ctx := t.Context()
	router, err := sockets.NewRouter(sockets.Options{Linger: sockets.LingerNone})
	testenv.Must(t, err)
	t.Cleanup(func() { router.Close() })
	testenv.Must(t, router.Bind(ctx, "tcp://127.0.0.1:*"))
	text := []byte(commandtest.Hostile)
	go func() {
		for {
			m, err := router.Recv(ctx)
			if err != nil {
				return
			}
			if len(m) < 4 {
				continue
			}
			to, service := slices.Clone(m[:3]), string(m[3]) // identity, empty, MDPC01
			if string(m[2]) == "MDPW01" {
				if string(m[3]) == "\x01" { // READY: a request follows
					_ = router.Send(ctx, append(to, []byte("\x02"), text, nil, text)...)
				}
				continue
			}
			body := [][]byte{text, text}
			switch {
			case failing:
				body = [][]byte{[]byte("MDP-ERROR"), []byte("500"), text}
			case strings.HasPrefix(service, "mmi."):
				body = [][]byte{[]byte("200"), text, []byte("1"), []byte("2"), []byte("3")}
			case strings.HasPrefix(service, "titanic."):
				body = [][]byte{[]byte("200"), text}
			}
			_ = router.Send(ctx, append(append(to, m[3]), body...)...)
		}
	}()
	return router.LastEndpoint()
}

// hostilePublisher publishes hostile text to each new subscriber.
func hostilePublisher(t *testing.T) (endpoint string) {
	t.Helper()
	ctx := t.Context()
	pub, err := sockets.NewXPub(sockets.Options{Linger: sockets.LingerNone, XPubVerbose: true})
	testenv.Must(t, err)
	t.Cleanup(func() { pub.Close() })
	testenv.Must(t, pub.Bind(ctx, "tcp://127.0.0.1:*"))
	go func() {
		for {
			if _, err := pub.Recv(ctx); err != nil {
				return
			}
			for _, text := range []string{commandtest.Hostile, commandtest.HostileText} {
				_ = pub.Send(ctx, []byte(text), []byte(text))
			}
		}
	}()
	return pub.LastEndpoint()
}

// hostileServer is a Freelance server that fails with hostile text, or replies with it.
func hostileServer(t *testing.T, failing bool) (endpoint string) {
	t.Helper()
	s, err := freelance.NewServer(t.Context(), freelance.ServerOptions{Bind: "tcp://127.0.0.1:*", Handler: func(context.Context, [][]byte) ([][]byte, error) {
		if failing {
			return nil, errors.New(commandtest.Hostile)
		}
		return [][]byte{[]byte(commandtest.HostileText), []byte(commandtest.Hostile)}, nil
	}})
	testenv.Must(t, err)
	t.Cleanup(func() { s.Close() })
	return s.Endpoint()
}

// subscriber subscribes to everything at the last endpoint.
func subscriber(t *testing.T, ready []string) *sockets.Sub {
	t.Helper()
	sub, err := sockets.NewSub(sockets.Options{})
	testenv.Must(t, err)
	testenv.Must(t, sub.Subscribe(""))
	testenv.Must(t, sub.Connect(ready[len(ready)-1]))
	return sub
}

// hostileRecording records what a hostile publisher sends.
func hostileRecording(t *testing.T, publisher string) (file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "recording")
	tap := zdev.Start(t, "tap", "--frontend", publisher, "--backend", "tcp://127.0.0.1:*", "--record", file, "--print")
	sub := subscriber(t, tap.Ready())
	defer sub.Close()
	for !strings.Contains(tap.Line(), " B ") {
	}
	testenv.Must(t, tap.Cmd.Process.Signal(os.Interrupt))
	tap.Wait()
	return file
}

// No command prints what a peer sends raw, whatever it prints of it and in which form: each
// command, with each flag that takes no value, with peers that send control characters,
// lines and bytes that are not UTF-8.
func TestHostilePeers(t *testing.T) {
	t.Parallel()
	publisher := hostilePublisher(t)
	recording := hostileRecording(t, publisher)
	for _, failing := range []bool{false, true} {
		given := map[string]string{
			"broker": hostileBroker(t, failing), "server": hostileServer(t, failing), "publisher": publisher, "frontend": publisher, "connect": publisher,
			"backend": "tcp://127.0.0.1:*", "timeout": "2s", "stats": "10ms", "speed": "0",
		}
		commandtest.EachCommand(newRoot(), func(cmd *cobra.Command, path []string, flag string) {
			name := strings.Join(append(path, flag), " ")
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				args := append(slices.Clone(path), commandtest.Operands(cmd, func(name string) string {
					switch name {
					case "FILE":
						return recording
					case "UUID":
						return "0f8fad5bd9cb469fa16570867728950e"
					case "EP", "DIR", "COMMAND", "ARG":
						return ""
					}
					return "hostile"
				})...)
				args = slices.DeleteFunc(args, func(arg string) bool { return arg == "" })
				if flag != "" {
					args = append(args, flag)
				}
				for name, value := range given {
					if path[0] == "lag" && name == "timeout" { // no message has a stamp
						value = "100ms"
					}
					if cmd.Flags().Lookup(name) != nil && (path[0] != "replay" || name != "connect") {
						args = append(args, "--"+name, value)
					}
				}
				for name, value := range map[string]string{"bind": "tcp://127.0.0.1:0", "data": filepath.Join(t.TempDir(), "data"), "out": filepath.Join(t.TempDir(), "key")} {
					if cmd.Flags().Lookup(name) != nil && path[0] != "replay" {
						args = append(args, "--"+name, value)
					}
				}
				if cmd.Flags().Lookup("echo") != nil && flag != "--echo" {
					args = append(args, "--echo")
				}
				o := untilIdle(t, path[0], args)
				commandtest.Harmless(t, o.Name+", stderr", o.Stderr)
				// Replies are printed as they are, except as JSON.
				if !slices.Contains([]string{"request", "fetch", "freelance-call"}, path[0]) || flag == "--json" {
					commandtest.Harmless(t, o.Name+", stdout", o.Out)
				}
			})
		})
	}
}

// untilIdle runs a command. One that does not end by itself is killed when it is ready and
// has printed a line, if it prints lines.
func untilIdle(t *testing.T, name string, args []string) commandtest.Outcome {
	t.Helper()
	if !slices.Contains([]string{"proxy", "tap", "cache", "lag", "broker", "worker", "freelance-serve", "titanic"}, name) {
		return zdev.Try(t, args...)
	}
	p := zdev.Start(t, args...)
	if name != "lag" { // it ends, because there is no stamp in the messages
		p.Await(`\bready\b|--help`)
	}
	var out strings.Builder
	if name == "tap" {
		sub := subscriber(t, p.Ready())
		defer sub.Close()
		for !slices.Contains(args, "--quiet") && !strings.Contains(out.String(), " B ") && !strings.Contains(out.String(), `"size":`) {
			out.WriteString(p.Line() + "\n")
		}
	}
	if name == "lag" || name == "cache" {
		line, _ := p.Stdout.ReadString('\n')
		out.WriteString(line)
	}
	_ = p.Cmd.Process.Kill()
	p.Wait()
	return commandtest.Outcome{Name: p.Name, Out: out.String(), Stderr: p.Stderr.String()}
}
