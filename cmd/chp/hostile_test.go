package main

import (
	"encoding/binary"
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"clustermap/internal/commandtest"
	"clustermap/internal/loopback"
	"clustermap/internal/testenv"
	"clustermap/sockets"

	"github.com/spf13/cobra"
)

// hostileServer is a server that sends hostile text wherever it can. It hands over if
// handsOver is set.
func hostileServer(t *testing.T, handsOver bool) (endpoint string) {
	t.Helper()
	ctx, host := t.Context(), loopback.Own()
	o := sockets.Options{Metadata: map[string]string{"X-CHP": "clustermap/1", "X-CHP-Max-Value": "16777216", "X-CHP-Refusals": "1"}, Linger: sockets.LingerNone}
	router, err := sockets.NewRouter(o)
	testenv.Must(t, err)
	pub, err := sockets.NewPub(o)
	testenv.Must(t, err)
	sub, err := sockets.NewSub(o)
	testenv.Must(t, err)
	testenv.Must(t, sub.Subscribe(""))
	for i, s := range []sockets.Socket{router, pub, sub} {
		testenv.Must(t, s.Bind(ctx, "tcp://"+net.JoinHostPort(host, strconv.Itoa(5556+i))))
		t.Cleanup(func() { s.Close() })
	}
	number := func(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }
	go func() {
		beat := time.NewTicker(100 * time.Millisecond)
		defer beat.Stop()
		for {
			select {
			case <-beat.C:
				_ = pub.Send(ctx, []byte("HUGZ"), number(1000), nil, nil, nil)
			case <-ctx.Done():
				return
			}
		}
	}()
	go func() { // it publishes each update
		for {
			m, err := sub.Recv(ctx)
			if err != nil {
				return
			}
			if len(m) == 5 && string(m[0]) != "HUGZ" {
				_ = pub.Send(ctx, m[0], number(2000), m[2], m[3], m[4])
			}
		}
	}()
	status, err := json.Marshal(map[string]any{
		"endpoint": commandtest.HostileText, "role": commandtest.HostileText, "state": "active", "epoch": 1, "sequence": 5,
		"peer": commandtest.HostileText, "version": commandtest.HostileText, "in_sync": true,
	})
	testenv.Must(t, err)
	clients, err := json.Marshal(map[string]any{"last": "", "clients": []map[string]any{{
		"name": commandtest.HostileText, "id": commandtest.HostileText, "remote": commandtest.HostileText, "endpoint": commandtest.HostileText,
		"subtrees": []string{commandtest.HostileText, "synced"}, "since": "2026-01-01T00:00:00Z",
	}}})
	testenv.Must(t, err)
	length := time.Duration(0) // of the window of hot keys
	go func() {
		for {
			m, err := router.Recv(ctx)
			if err != nil {
				return
			}
			send := func(frames ...[]byte) { _ = router.Send(ctx, append([][]byte{m[0]}, frames...)...) }
			switch string(m[1]) {
			case "STATUS?":
				send([]byte("STATUS"), status)
			case "CLIENTS?":
				send([]byte("CLIENTS"), clients)
			case "HOT?":
				length += time.Second
				hot, _ := json.Marshal(map[string]any{"Began": 1, "Length": length, "Updates": length, "Bytes": length, "Keys": []map[string]any{
					{"Key": []byte(commandtest.Hostile), "Updates": length / 2, "Bytes": length}, {"Key": []byte("synced"), "Updates": length / 3, "Bytes": length},
				}})
				send([]byte("HOT"), hot)
			case "KICK?":
				refused, _ := json.Marshal(map[string]any{"refused": commandtest.HostileText})
				send([]byte("KICK"), refused)
			case "FAILOVER?":
				reason := commandtest.Hostile
				if handsOver {
					reason = ""
				}
				send([]byte("FAILOVER"), []byte(reason))
			case "ICANHAZ?":
				var subtree []byte
				if len(m) > 2 {
					subtree = m[2]
				}
				for i, key := range []string{"/a/" + commandtest.Hostile, "/a/" + commandtest.HostileText, "/a/x", commandtest.HostileText} {
					send([]byte(key), number(uint64(990+i)), make([]byte, 16), []byte("ttl="+commandtest.Hostile+"\n"), []byte(commandtest.HostileText[:min(len(commandtest.HostileText), 40*i+20)]))
					send([]byte(key+"2"), number(uint64(995+i)), make([]byte, 16), nil, []byte(commandtest.Hostile))
				}
				send([]byte("KTHXBAI"), number(1000), nil, nil, subtree)
			}
		}
	}()
	return "tcp://" + net.JoinHostPort(host, "5556")
}

// No command prints what a server sends raw, whatever it prints of it and in which form:
// each command, with each flag that takes no value, with a server that sends control
// characters, lines and bytes that are not UTF-8 in everything that it says.
func TestHostileServer(t *testing.T) {
	t.Parallel()
	for _, handsOver := range []bool{false, true} {
		endpoint := hostileServer(t, handsOver)
		commandtest.EachCommand(newRoot(), func(cmd *cobra.Command, path []string, flag string) {
			t.Run(strings.Join(append(path, flag), " "), func(t *testing.T) {
				t.Parallel()
				dir := t.TempDir()
				file := filepath.Join(dir, "file")
				testenv.Must(t, os.WriteFile(file, []byte(`{"key":"/a/x","value":"y"}`+"\n"+commandtest.Hostile), 0o600))
				args := append(slices.Clone(path), commandtest.Operands(cmd, func(name string) string {
					switch name {
					case "VALUE":
						return "v"
					case "N":
						return "1"
					case "SUBTREE", "PREFIX":
						return "/a/"
					case "FILE", "PATH":
						return file
					case "DIR":
						return filepath.Join(dir, commandtest.Hostile[:6])
					}
					return "/a/x"
				})...)
				if path[0] == "backup" {
					args = []string{"backup", filepath.Join(dir, "new")}
				}
				if flag != "" {
					args = append(args, flag)
				}
				if cmd.Flags().Lookup("server") != nil {
					args = append(args, "--server", endpoint)
				}
				if cmd.Flags().Lookup("timeout") != nil {
					args = append(args, "--timeout", "2s")
				}
				if cmd.Flags().Lookup("out") != nil {
					args = append(args, "--out", filepath.Join(dir, "key"))
				}
				if path[0] == "sync" {
					args = append(args, "--once")
				}
				if path[0] == "serve" {
					args = append(args, "--host", loopback.Own())
				}
				if cmd.Name() == "dev" { // it asks no server, and has its nodes listen
					args = append(args, "--port", "65535")
				}
				run := program(t, args...)
				run.Env = append(run.Env, "XDG_CONFIG_HOME="+dir, "TMPDIR="+dir, "VISUAL=", "EDITOR=echo edited >")
				var o outcome
				if path[0] == "serve" || path[0] == "watch" || flag == "--watch" { // they do not end by themselves
					o = untilIdle(t, startCommand(t, run), path[0])
				} else {
					o = runCommand(t, run)
				}
				commandtest.Harmless(t, o.name+", stderr", o.stderr)
				// chp get prints values as they are, except in a list or as JSON.
				if path[0] != "get" || flag == "--json" || flag == "--prefix" {
					commandtest.Harmless(t, o.name+", stdout", o.out)
				}
			})
		})
	}
}

// untilIdle ends a command that does not end by itself when it has printed what it gets at
// the beginning.
func untilIdle(t *testing.T, p *process, name string) outcome {
	t.Helper()
	var out strings.Builder
	if name == "serve" {
		select {
		case <-p.waited: // the command line is invalid
		default:
			p.Await("ready|--help")
		}
	} else {
		for !strings.Contains(out.String(), "synced") {
			line, err := p.stdout.ReadString('\n')
			out.WriteString(line)
			if err != nil {
				break
			}
		}
	}
	_ = p.cmd.Process.Kill()
	p.wait()
	return outcome{p.name(), out.String(), p.stderr.String(), 0}
}
