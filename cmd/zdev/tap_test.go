package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"clustermap/internal/command"
	"clustermap/internal/commandtest"
	"clustermap/internal/interop"
	"clustermap/sockets"
	"clustermap/zmtp"
)

// published is a bound publisher, a tap connected to it, and a subscriber to everything
// connected to the tap.
type published struct {
	*commandtest.Process
	pub *sockets.Pub
	sub *sockets.Sub
}

func tapPublisher(t *testing.T, args ...string) *published {
	t.Helper()
	return tapCommand(t, func(args []string) *commandtest.Process { return zdev.Start(t, args...) }, args...)
}

func tapCommand(t *testing.T, start func(args []string) *commandtest.Process, args ...string) *published {
	t.Helper()
	ctx := testContext(t)
	p := &published{}
	var err error
	if p.pub, err = sockets.NewPub(sockets.Options{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.pub.Close() })
	if err := p.pub.Bind(ctx, "tcp://127.0.0.1:*"); err != nil {
		t.Fatal(err)
	}
	p.Process = start(append([]string{"tap", "--frontend", p.pub.LastEndpoint(), "--backend", "tcp://127.0.0.1:*"}, args...))
	at := p.Ready()
	p.sub = connected(t, sockets.NewSub, sockets.Options{}, at[1])
	if err := p.sub.Subscribe(""); err != nil {
		t.Fatal(err)
	}
	if err := p.pub.WaitSubscribers(ctx, "", 1); err != nil {
		t.Fatal(err)
	}
	return p
}

// pass sends messages through the tap and receives them.
func (p *published) pass(t *testing.T, messages ...string) {
	t.Helper()
	ctx := testContext(t)
	for _, text := range messages {
		if err := p.pub.Send(ctx, []byte(text), []byte("value")); err != nil {
			t.Fatal(err)
		}
	}
	for _, text := range messages {
		if m, err := p.sub.Recv(ctx); err != nil || string(m[0]) != text {
			t.Fatalf("%q, %v; want %s", m, err, text)
		}
	}
}

// A tap prints subscriptions and messages, as text and as JSON.
func TestTap(t *testing.T) {
	t.Parallel()
	p := tapPublisher(t)
	if line := p.Line(); !strings.HasSuffix(line, ` backend  subscribe   ""`) {
		t.Errorf("%q", line)
	}
	p.pass(t, "a", "b c", strings.Repeat("x", 100))
	for _, want := range []string{" frontend 6 B         a value", ` frontend 8 B         "b c" value`, ` frontend 105 B       "` + strings.Repeat("x", 64) + `"… value`} {
		if line := p.Line(); !strings.HasSuffix(line, want) {
			t.Errorf("%q, want %q", line, want)
		}
	}
	endsWell(t, p.Process)

	p = tapPublisher(t, "--json", "--topic", "a", "--topic", "b", "--from", "frontend")
	p.pass(t, "a", "c", "b\xff")
	for _, want := range []map[string]any{
		{"op": "message", "from": "frontend", "topic": "a", "size": 6.0, "frames": []any{"a", "value"}},
		{"op": "message", "from": "frontend", "topic_base64": "Yv8=", "size": 7.0, "frames_base64": []any{"Yv8=", "dmFsdWU="}},
	} {
		got := commandtest.Object(t, p.Line())
		if at, err := time.Parse(time.RFC3339Nano, fmt.Sprint(got["time"])); err != nil || time.Since(at) > time.Hour {
			t.Errorf("%v: %v", got, err)
		}
		delete(got, "time")
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%v, want %v", got, want)
		}
	}
	endsWell(t, p.Process)
}

// Requests and replies are shown with their envelope.
func TestTapReqRep(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	service := connectable(t)
	p := zdev.Start(t, "tap", "--kind", "reqrep", "--frontend", "tcp://127.0.0.1:*", "--backend", service.LastEndpoint(), "--json")
	at := p.Ready()
	client := connected(t, sockets.NewReq, sockets.Options{Identity: []byte("me")}, at[0])
	if err := client.Send(ctx, []byte("question")); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Recv(ctx); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"map[envelope:2 frames:[me  question] from:frontend op:message size:10 topic:question]", "map[envelope:2 frames:[me  re question] from:backend op:message size:13 topic:re question]"} {
		got := commandtest.Object(t, p.Line())
		delete(got, "time")
		if fmt.Sprint(got) != want {
			t.Errorf("%v, want %s", got, want)
		}
	}
	endsWell(t, p)
}

// connectable is a service that answers requests.
func connectable(t *testing.T) *sockets.Rep {
	t.Helper()
	ctx := testContext(t)
	service, err := sockets.NewRep(sockets.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := service.Bind(ctx, "tcp://127.0.0.1:*"); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			m, err := service.Recv(ctx)
			if err != nil || service.Send(ctx, append([]byte("re "), m[0]...)) != nil {
				return
			}
		}
	}()
	t.Cleanup(func() {
		service.Close()
		<-ended
	})
	return service
}

// A tap whose output is full and unread continues to forward, and ends after a signal.
func TestTapWithOutputUnread(t *testing.T) {
	t.Parallel()
	p := tapPublisher(t, "--queue", "64KiB")
	ctx := testContext(t)
	const messages = 3000
	text := make([]byte, 1000)
	for i := range messages {
		copy(text, fmt.Sprint(i))
		if err := p.pub.Send(ctx, text); err != nil {
			t.Fatal(err)
		}
		if m, err := p.sub.Recv(ctx); err != nil || string(m[0]) != string(text) {
			t.Fatal(err)
		}
	}
	endsWell(t, p.Process)
	if !strings.Contains(p.Stderr.String(), "nothing reads the output") {
		t.Errorf("stderr %q", p.Stderr.String())
	}
}

// A reader that was too slow is told how many messages are missing.
func TestTapTellsWhatIsLost(t *testing.T) {
	t.Parallel()
	p := tapPublisher(t, "--json", "--queue", "16KiB", "--from", "frontend")
	long := strings.Repeat("x", 9000)
	const messages = 100
	for range messages {
		p.pass(t, long)
	}
	heard, lost := 0, 0
	for heard+lost < messages {
		switch e := commandtest.Object(t, p.Line()); e["op"] {
		case "message":
			heard++
		case "lost":
			lost += int(e["messages"].(float64))
		}
	}
	if heard+lost != messages || lost == 0 {
		t.Errorf("%d messages, %d lost", heard, lost)
	}
	endsWell(t, p.Process)
}

// A tap whose reader has gone ends.
func TestTapHangup(t *testing.T) {
	t.Parallel()
	p := tapPublisher(t)
	p.Line()
	p.Pipe.Close()
	if code := p.Wait(); code != command.ExitDone {
		t.Errorf("exit code %d: %s", code, p.Stderr.String())
	}
}

// A write error ends the output, but not forwarding.
func TestTapOutputFails(t *testing.T) {
	t.Parallel()
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skipf("this system has no device that is always full: %v", err)
	}
	defer full.Close()
	p := tapCommand(t, func(args []string) *commandtest.Process {
		// The shell puts a file where StartCommand has its pipe.
		cmd := zdev.Command(t)
		line := "exec '" + cmd.Path + "' \"$@\" > /dev/full"
		cmd.Path, cmd.Args = "/bin/sh", append([]string{"sh", "-c", line, "zdev"}, args...)
		return zdev.StartCommand(t, cmd)
	})
	p.Await("cannot write the output: .*no space.*; forwarding continues")
	p.pass(t, "a", "b")
	p.Signal(os.Interrupt)
	if code := p.Wait(); code != command.ExitRefused {
		t.Errorf("exit code %d: %s", code, p.Stderr.String())
	}
}

// A replay sends the recorded messages to a subscriber, and prints subscriptions.
func TestRecordAndReplay(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	file := filepath.Join(t.TempDir(), "flow")
	p := tapPublisher(t, "--record", file)
	var want []string
	for i := range 100 {
		want = append(want, fmt.Sprint("topic", i))
	}
	p.pass(t, want...)
	endsWell(t, p.Process)
	if !strings.Contains(p.Stderr.String(), "recorded 100 messages and 1 subscribe or unsubscribe, lost 0") {
		t.Errorf("stderr %q", p.Stderr.String())
	}
	if rest, _ := p.Stdout.ReadString(0); rest != "" {
		t.Errorf("printed %q", rest)
	}
	// It replaces nothing.
	zdev.Try(t, "tap", "--frontend", "tcp://127.0.0.1:1", "--backend", "tcp://127.0.0.1:*", "--record", file).Expect(t, command.ExitRefused, "already exists")

	for _, speed := range []string{"0", "1", "1000"} {
		r := zdev.Start(t, "replay", file, "--bind", "tcp://127.0.0.1:*", "--speed", speed, "--json")
		sub := connected(t, sockets.NewSub, sockets.Options{}, r.Ready()[0])
		if err := sub.Subscribe(""); err != nil {
			t.Fatal(err)
		}
		for _, topic := range want {
			if m, err := sub.Recv(ctx); err != nil || len(m) != 2 || string(m[0]) != topic || string(m[1]) != "value" {
				t.Fatalf("%q, %v; want %s", m, err, topic)
			}
		}
		if e := commandtest.Object(t, r.Line()); e["op"] != "subscribe" || e["topic"] != "" || e["from"] != "backend" {
			t.Errorf("%v", e)
		}
		for _, topic := range want {
			if e := commandtest.Object(t, r.Line()); e["op"] != "message" || e["topic"] != topic {
				t.Errorf("%v, want %s", e, topic)
			}
		}
		if code := r.Wait(); code != command.ExitDone || !strings.Contains(r.Stderr.String(), "sent 100 messages") {
			t.Errorf("exit code %d: %s", code, r.Stderr.String())
		}
		sub.Close()
	}

	// Printed only, and filtered.
	out := zdev.Must(t, "replay", file, "--topic", "topic1")
	if lines := strings.Split(out, "\n"); len(lines) != 12 || !strings.HasSuffix(lines[0], " topic1 value") {
		t.Errorf("%q", out)
	}
	if out := zdev.Must(t, "replay", file, "--from", "backend"); !strings.HasSuffix(out, " backend  subscribe   \"\"\n") || strings.Count(out, "\n") != 1 {
		t.Errorf("%q", out)
	}

	// A torn end, and damage.
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	torn := filepath.Join(t.TempDir(), "torn")
	if err := os.WriteFile(torn, whole[:len(whole)-1], 0o666); err != nil {
		t.Fatal(err)
	}
	o := zdev.Try(t, "replay", torn)
	o.Expect(t, command.ExitDone, "is incomplete")
	if n := strings.Count(o.Out, "\n"); n != 100 {
		t.Errorf("%d lines of a recording without its last record", n)
	}
	whole[len(whole)/2] ^= 1
	if err := os.WriteFile(torn, whole, 0o666); err != nil {
		t.Fatal(err)
	}
	zdev.Try(t, "replay", torn).Expect(t, command.ExitRefused, "damaged at byte")
	if err := os.WriteFile(torn, []byte("something else entirely"), 0o666); err != nil {
		t.Fatal(err)
	}
	zdev.Try(t, "replay", torn).Expect(t, command.ExitRefused, "not a recording")
	zdev.Try(t, "replay", torn+"x").Expect(t, command.ExitRefused, "no such file")
	zdev.Try(t, "replay", file, "--speed", "-1").Expect(t, command.ExitUsage, "--speed")
	zdev.Try(t, "replay", file, "--wait", "-1").Expect(t, command.ExitUsage, "--wait")
	zdev.Try(t, "replay", file, "--timeout", "-1s").Expect(t, command.ExitUsage, "--timeout")
	zdev.Try(t, "replay", file, "--from", "above").Expect(t, command.ExitUsage, "--from")
	zdev.Try(t, "replay", file, "--bind", "nonsense").Expect(t, command.ExitUsage, "--bind")
}

// The recording of a tap that was killed is replayed up to its last complete record.
func TestReplayAfterKill(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "flow")
	p := tapPublisher(t, "--record", file, "--print", "--from", "frontend")
	sent := 0
	for ; sent < 50; sent++ {
		p.pass(t, fmt.Sprint(sent))
		p.Line()
	}
	// The messages sent before are in the file, or about to be: each in one write.
	for n := 0; n < sent; n = strings.Count(zdev.Must(t, "replay", file), "\n") {
	}
	p.Cmd.Process.Kill()
	p.Wait()
	if n := strings.Count(zdev.Must(t, "replay", file), "\n"); n != sent {
		t.Errorf("%d messages, want %d", n, sent)
	}
}

// Recorded requests are sent to a service again, and the replies are counted.
func TestReplayRequests(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	service := connectable(t)
	file := filepath.Join(t.TempDir(), "flow")
	p := zdev.Start(t, "tap", "--kind", "reqrep", "--frontend", "tcp://127.0.0.1:*", "--backend", service.LastEndpoint(), "--record", file)
	client := connected(t, sockets.NewReq, sockets.Options{}, p.Ready()[0])
	for range 5 {
		if err := client.Send(ctx, []byte("question")); err != nil {
			t.Fatal(err)
		}
		if _, err := client.Recv(ctx); err != nil {
			t.Fatal(err)
		}
	}
	endsWell(t, p)
	o := zdev.Try(t, "replay", file, "--connect", service.LastEndpoint(), "--speed", "0")
	o.Expect(t, command.ExitDone, "sent 5 requests, received 5 replies")
	if n := strings.Count(o.Out, "\n"); n != 10 {
		t.Errorf("%d lines: %s", n, o.Out)
	}
	// Nobody answers.
	deaf, err := sockets.NewDealer(sockets.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { deaf.Close() })
	if err := deaf.Bind(ctx, "tcp://127.0.0.1:*"); err != nil {
		t.Fatal(err)
	}
	zdev.Try(t, "replay", file, "--connect", deaf.LastEndpoint(), "--speed", "0", "--quiet", "--timeout", "50ms").
		Expect(t, command.ExitNoAnswer, "sent 5 requests, but received only 0 replies")
}

// The guide's Espresso, with its programs on libzmq: the publisher at 6000, the
// subscriber at 6001, and zdev tap between them.
func TestTapInterop(t *testing.T) {
	t.Parallel()
	interop.Require(t)
	const peers = "../../patterns/espresso/testdata/espresso.py"
	publisher := interop.Python(t, peers, "publish", "tcp://127.0.0.1:*", "--interval", "5")
	p := zdev.Start(t, "tap", "--frontend", publisher.Endpoint, "--backend", "tcp://127.0.0.1:*", "--json")
	subscriber := interop.Python(t, peers, "subscribe", p.Ready()[1])
	var received struct{ Messages []string }
	subscriber.Event("received", &received)
	var messages, ops []string
	for len(ops) < 4 {
		switch e := commandtest.Object(t, p.Line()); e["op"] {
		case "message":
			messages = append(messages, e["topic"].(string))
		default:
			ops = append(ops, fmt.Sprint(e["op"], " ", e["topic"]))
		}
	}
	if len(received.Messages) != 5 || len(messages) < 5 || fmt.Sprint(messages[:5]) != fmt.Sprint(received.Messages) {
		t.Errorf("printed %q, received %q", messages, received.Messages)
	}
	if fmt.Sprint(ops[:2]) != "[subscribe A subscribe B]" || !strings.Contains(fmt.Sprint(ops), "unsubscribe A") || !strings.Contains(fmt.Sprint(ops), "unsubscribe B") {
		t.Errorf("%q", ops)
	}
	endsWell(t, p)
}

// A tap proves its key to a publisher with CURVE, and its own subscribers need none.
func TestTapCurve(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	file := filepath.Join(t.TempDir(), "key")
	public, err := zmtp.ParsePublicKey(strings.TrimSpace(zdev.Must(t, "keygen", "--out", file)))
	if err != nil {
		t.Fatal(err)
	}
	server := zmtp.GenerateKeyPair()
	pub, err := sockets.NewPub(sockets.Options{Security: sockets.Security{
		CurveServer: true, CurveSecretKey: server.Secret, Authenticate: sockets.AllowKeys(public),
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { pub.Close() })
	if err := pub.Bind(ctx, "tcp://127.0.0.1:*"); err != nil {
		t.Fatal(err)
	}
	p := zdev.Start(t, "tap", "--frontend", pub.LastEndpoint(), "--backend", "tcp://127.0.0.1:*", "--from", "frontend",
		"--curve-key", file, "--curve-server-key", server.Public.String())
	sub := connected(t, sockets.NewSub, sockets.Options{}, p.Ready()[1])
	if err := sub.Subscribe("a"); err != nil {
		t.Fatal(err)
	}
	if err := pub.WaitSubscribers(ctx, "a", 1); err != nil {
		t.Fatal(err)
	}
	if err := pub.Send(ctx, []byte("a")); err != nil {
		t.Fatal(err)
	}
	if m, err := sub.Recv(ctx); err != nil || string(m[0]) != "a" {
		t.Fatalf("%q, %v", m, err)
	}
	if line := p.Line(); !strings.HasSuffix(line, " a") {
		t.Errorf("%q", line)
	}
	endsWell(t, p)
}
