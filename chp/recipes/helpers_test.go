package recipes

import (
	"context"
	"io"
	"log/slog"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"clustermap/chp"
	"clustermap/internal/testenv"

	"go.uber.org/goleak"
)

var (
	must        = testenv.Must
	testContext = testenv.Context
	eventually  = testenv.Eventually
)

func TestMain(m *testing.M) {
	switch {
	case os.Getenv(holderVariable) != "":
		os.Exit(holder())
	case os.Getenv(serverVariable) != "":
		os.Exit(server())
	}
	goleak.VerifyTestMain(m)
}

func quiet() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

// startServer serves on free ports until the test ends.
func startServer(t testing.TB) *chp.Server {
	t.Helper()
	s, err := chp.NewServer(chp.ServerOptions{Logger: quiet()})
	must(t, err)
	must(t, s.Listen(testContext(t)))
	served := make(chan error, 1)
	go func() { served <- s.Serve(context.Background()) }()
	<-s.Ready()
	t.Cleanup(func() {
		must(t, s.Close())
		must(t, <-served)
	})
	return s
}

// places returns how many hold locks, and wait for some.
func places(s *chp.Server) (n int) {
	for range s.Prefix("/l/") {
		n++
	}
	return n
}

func startClient(t testing.TB, servers ...string) *chp.Client {
	t.Helper()
	c, err := chp.NewClient(chp.ClientOptions{Servers: servers, Subtrees: []string{"/l/"}, Logger: quiet()})
	must(t, err)
	t.Cleanup(func() { must(t, c.Close()) })
	return c
}

// serverVariable makes this program a server of a pair: primary or backup, and a host.
const serverVariable = "RECIPES_TEST_SERVER"

const primaryPort, backupPort = 5556, 5566

func endpoint(host string, port int) string {
	return "tcp://" + net.JoinHostPort(host, strconv.Itoa(port))
}

// server serves as the variable says.
func server() int {
	role, host, _ := strings.Cut(os.Getenv(serverVariable), " ")
	o := chp.ServerOptions{
		Host: host, Port: primaryPort, HeartbeatInterval: 50 * time.Millisecond,
		Pair: &chp.PairOptions{
			Peer: endpoint(host, backupPort), State: endpoint(host, 5003), PeerState: endpoint(host, 5004),
			Interval: 100 * time.Millisecond, Timeout: time.Second,
		},
	}
	if role == "backup" {
		p := o.Pair
		o.Port, p.Backup, p.Peer, p.State, p.PeerState = backupPort, true, endpoint(host, primaryPort), p.PeerState, p.State
	}
	s, err := chp.NewServer(o)
	if err != nil {
		panic(err)
	}
	if err := s.Serve(context.Background()); err != nil {
		panic(err)
	}
	return 0
}

// holderVariable makes this program one that holds a lock: see holder.
const holderVariable = "RECIPES_TEST_HOLDER"

// holderOptions are the value of the variable.
type holderOptions struct {
	Servers []string
	TTL     time.Duration
}
