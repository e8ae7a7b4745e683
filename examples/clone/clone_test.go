package clone

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"clustermap/internal/interop"
	"clustermap/internal/loopback"
	"clustermap/internal/testenv"
)

// guide starts a program on libzmq that has the frames of the guide's.
func guide(t *testing.T, role string, model int, host string, args ...string) *interop.Process {
	t.Helper()
	return interop.Python(t, "clone_models.py", append([]string{role, "--model", strconv.Itoa(model), "--host", host}, args...)...)
}

func name(model int, role string) string { return fmt.Sprintf("model%d/%s", model, role) }

func call(p *interop.Process, op string, args ...any) {
	o := interop.Op{"op": op}
	for i := 0; i < len(args); i += 2 {
		o[args[i].(string)] = args[i+1]
		if s, ok := args[i+1].(string); ok {
			o[args[i].(string)] = []byte(s)
		}
	}
	p.Call(o, nil)
}

// digest describes the map of a Python program, restricted to the keys with the prefix.
func digest(p *interop.Process, prefix string) end {
	var d struct {
		interop.Map
		Sequence int64
	}
	p.Call(interop.Op{"op": "digest", "prefix": []byte(prefix)}, &d)
	return of(d.Sequence, d.Map)
}

func want(t *testing.T, who string, got, want end) {
	t.Helper()
	if got != want {
		t.Errorf("%s has %+v, want %+v", who, got, want)
	}
}

// noMalformed checks that a Python program has understood all that it received.
func noMalformed(t *testing.T, p *interop.Process) {
	t.Helper()
	var stats struct{ Malformed int }
	p.Call(interop.Op{"op": "stats"}, &stats)
	if stats.Malformed > 0 {
		t.Errorf("%d messages are malformed", stats.Malformed)
	}
}

// receives waits until a Python server has received n updates from clients.
func receives(t *testing.T, p *interop.Process, n int) {
	t.Helper()
	testenv.Eventually(t, fmt.Sprintf("%d updates have come from clients", n), func() bool {
		var stats struct{ Received, KVSet int }
		p.Call(interop.Op{"op": "stats"}, &stats)
		return stats.Received+stats.KVSet >= n
	})
}

// styles are the guide's C and Python programs, which differ in some frames.
var styles = []string{"c", "py"}

// Our servers of models 1 and 2, which make the updates themselves, with clients
// as the guide has them: one that is there at the beginning, one that joins late.
func TestServerPublishes(t *testing.T) {
	t.Parallel()
	for model := 1; model <= 2; model++ {
		t.Run(fmt.Sprint(model), func(t *testing.T) {
			t.Parallel()
			interop.Require(t)
			host := loopback.OwnPorts(t)
			server := start(t, name(model, "server"), "-host", host).ready()
			first := guide(t, "client", model, host)
			call(first, "wait_sequence", "sequence", 20)
			late := guide(t, "client", model, host)
			call(late, "wait_joined")
			call(late, "wait_sequence", "sequence", 40)

			all := server.stop()
			call(first, "wait_sequence", "sequence", all.sequence)
			call(late, "wait_sequence", "sequence", all.sequence)
			want(t, "the client", digest(first, ""), all)
			got := digest(late, "")
			if model == 1 {
				if got.keys >= all.keys {
					t.Errorf("the late client of model 1 has %d keys, as many as the server", got.keys)
				}
			} else {
				want(t, "the late client", got, all)
			}
			noMalformed(t, first)
			noMalformed(t, late)
		})
	}
}

// Our servers of models 3 to 5, which collect updates, with clients as the guide
// has them: one that writes, one that joins late, from model 4 on for a subtree.
func TestServerCollects(t *testing.T) {
	t.Parallel()
	for model := 3; model <= 5; model++ {
		for _, style := range styles {
			t.Run(fmt.Sprint(model, style), func(t *testing.T) {
				t.Parallel()
				interop.Require(t)
				host := loopback.OwnPorts(t)
				server := start(t, name(model, "server"), "-host", host).ready()
				writer := guide(t, "client", model, host, "--style", style)
				call(writer, "wait_joined")
				// More than fits in the queues of a ROUTER of libzmq.
				for i := range 1200 {
					call(writer, "set", "key", fmt.Sprintf("/client/%d", i), "value", fmt.Sprint(i))
				}
				call(writer, "set", "key", "/other/1", "value", "x")
				call(writer, "wait", "key", "/other/1", "value", "x")
				subtree := ""
				if model > 3 {
					subtree = "/client/"
				}
				late := guide(t, "client", model, host, "--style", style, "--subtree", subtree)
				call(late, "wait_joined")
				call(late, "wait", "key", "/client/1199", "value", "1199")
				if model == 5 {
					call(writer, "set", "key", "/client/0") // deleted
					call(writer, "set", "key", "/client/1", "value", "short", "ttl", 1)
					call(writer, "set", "key", "/client/2", "value", "long", "ttl", 3600)
					for _, p := range []*interop.Process{writer, late} {
						call(p, "wait", "key", "/client/2", "value", "long")
						call(p, "wait", "key", "/client/0")
						call(p, "wait", "key", "/client/1") // expired
					}
				}
				call(writer, "set", "key", "/other/1", "value", "y")
				call(writer, "set", "key", "/client/last", "value", "z")
				call(writer, "wait", "key", "/client/last", "value", "z")
				call(late, "wait", "key", "/client/last", "value", "z")

				all := server.stop()
				call(writer, "wait_sequence", "sequence", all.sequence)
				call(late, "wait_sequence", "sequence", all.sequence)
				want(t, "the writer", digest(writer, ""), all)
				part := digest(writer, subtree)
				want(t, "the late client", digest(late, ""), part)
				if outside := all.keys - part.keys; model > 3 && outside != 2 {
					t.Errorf("%d keys outside the subtree, want /other/1 and the writer's probe", outside)
				}
				noMalformed(t, writer)
				noMalformed(t, late)
			})
		}
	}
}

// Our clients with servers as the guide has them.
func TestClient(t *testing.T) {
	t.Parallel()
	for model := 1; model <= 5; model++ {
		for _, style := range styles {
			t.Run(fmt.Sprint(model, style), func(t *testing.T) {
				t.Parallel()
				interop.Require(t)
				host := loopback.OwnPorts(t)
				server := guide(t, "server", model, host, "--style", style)
				if model > 1 {
					// For the snapshot.
					for i := range 1200 {
						call(server, "set", "key", fmt.Sprintf("/client/%d", i), "value", fmt.Sprint(i))
					}
					call(server, "set", "key", "/other/0", "value", "x")
				}
				client := start(t, name(model, "client"), "-host", host)
				call(server, "wait_joined")
				call(server, "set", "key", "/client/first", "value", "x")
				client.ready()
				for i := range 100 {
					call(server, "set", "key", fmt.Sprintf("/client/%d", 1150+i), "value", "new")
				}
				if model == 5 {
					call(server, "set", "key", "/client/0") // deleted
					call(server, "set", "key", "/client/1", "value", "short", "ttl", 1)
					call(server, "wait", "key", "/client/1") // expired
				}
				if model > 2 { // it sends updates of its own
					receives(t, server, 3)
					call(server, "freeze")
				}
				call(server, "set", "key", "/other/1", "value", "x")
				call(server, "set", "key", "/client/last", "value", "x")

				prefix := ""
				if model > 3 {
					prefix = "/client/"
				}
				wanted := digest(server, prefix)
				client.reaches(wanted.sequence)
				want(t, "the client", client.stop(), wanted)
				noMalformed(t, server)
			})
		}
	}
}

// Our clients with our servers: two clients, of which one joins late.
func TestOurs(t *testing.T) {
	t.Parallel()
	for model := 1; model <= 5; model++ {
		t.Run(fmt.Sprint(model), func(t *testing.T) {
			t.Parallel()
			host := loopback.OwnPorts(t)
			server := start(t, name(model, "server"), "-host", host).ready()
			clients := []*program{start(t, name(model, "client"), "-host", host).ready()}
			clients[0].reaches(2)
			if model > 1 {
				clients = append(clients, start(t, name(model, "client"), "-host", host).ready())
			}
			clients[0].reaches(6)
			all := server.stop()
			for _, c := range clients {
				c.reaches(all.sequence)
				want(t, "a client", c.stop(), all)
			}
		})
	}
}

// Model 6: our server with clients as the guide has them, one of which joins late.
func TestServer6(t *testing.T) {
	t.Parallel()
	for _, style := range styles {
		t.Run(style, func(t *testing.T) {
			t.Parallel()
			interop.Require(t)
			host := loopback.OwnPorts(t)
			server := start(t, "model6/server", "-host", host).ready()
			guide := func(args ...string) *interop.Process {
				p := interop.Python(t, "clone_client.py", append([]string{"--server", host + ":5556", "--style", style}, args...)...)
				call(p, "wait_active")
				return p
			}
			writer := guide()
			for i := range 50 {
				call(writer, "set", "key", fmt.Sprintf("/client/%d", i), "value", fmt.Sprint(i))
			}
			call(writer, "set", "key", "/other/1", "value", "x")
			call(writer, "wait", "key", "/other/1", "value", "x")
			late := guide("--subtree", "/client/")
			call(writer, "set", "key", "/client/0") // deleted
			call(writer, "set", "key", "/client/1", "value", "short", "ttl", 1)
			call(writer, "wait", "key", "/client/1") // expired
			call(writer, "set", "key", "/client/last", "value", "x")
			call(writer, "wait", "key", "/client/last", "value", "x")
			call(late, "wait", "key", "/client/last", "value", "x")
			got, part := digest6(writer), digest6(late)
			all := server.stop()
			if got.sequence != all.sequence || got.keys != all.keys || part.keys != all.keys-1 || part.sequence != all.sequence {
				t.Errorf("server %+v, client %+v, client of the subtree %+v", all, got, part)
			}
		})
	}
}

// digest6 is digest for clone_client.py, which has no prefix.
func digest6(p *interop.Process) end {
	var d struct {
		interop.Map
		Sequence int64
	}
	p.Call(interop.Op{"op": "digest"}, &d)
	return of(d.Sequence, d.Map)
}

// Model 6: our client with servers as the guide has them. It turns to the second
// one when the first is gone.
func TestClient6(t *testing.T) {
	t.Parallel()
	for _, style := range styles {
		t.Run(style, func(t *testing.T) {
			t.Parallel()
			interop.Require(t)
			host := loopback.OwnPorts(t)
			guide := func(port string) *interop.Process {
				return interop.Python(t, "clone_server.py", "--host", host, "--port", port, "--heartbeat", "50", "--style", style)
			}
			primary, backup := guide("5556"), guide("5566")
			for i := range 50 {
				call(primary, "set", "key", fmt.Sprintf("/client/p%d", i), "value", fmt.Sprint(i))
			}
			call(primary, "set", "key", "/other/1", "value", "x")
			call(backup, "set", "key", "/client/backup", "value", "x")
			client := start(t, "model6/client", "-host", host).ready()
			call(primary, "set", "key", "/client/new", "value", "x")
			client.line("the update", func(line string) bool { return strings.HasSuffix(line, ": /client/new=x") })
			receives(t, primary, 2)
			primary.Kill()
			client.line("the backup's key", func(line string) bool { return strings.HasSuffix(line, ": /client/backup=x") })
			if e := client.stop(); e.keys == 0 {
				t.Errorf("the client ended with %+v", e)
			}
		})
	}
}

// Model 6: our clients with our server.
func TestOurs6(t *testing.T) {
	t.Parallel()
	host := loopback.OwnPorts(t)
	server := start(t, "model6/server", "-host", host).ready()
	first := start(t, "model6/client", "-host", host).ready()
	first.line("an update", func(line string) bool { return strings.HasPrefix(line, "update") })
	late := start(t, "model6/client", "-host", host).ready()
	// Both clients have every update that the server published before its end. They keep
	// it when it is gone.
	line := late.line("an update after its snapshot", func(line string) bool { return strings.HasPrefix(line, "update") })
	var n int64
	fmt.Sscanf(line, "update %d:", &n)
	first.reaches(n)
	all := server.stop()
	first.reaches(all.sequence)
	late.reaches(all.sequence)
	one, two := first.stop(), late.stop()
	if one != two || one.sequence != all.sequence || one.keys != all.keys {
		t.Errorf("server %+v, clients %+v and %+v", all, one, two)
	}
}
