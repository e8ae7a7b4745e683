package interop

import (
	"context"
	"crypto/sha3"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"clustermap/internal/buf"
	"clustermap/internal/interop"
	"clustermap/sockets"
	"clustermap/zmtp"
)

// The matrix puts each of our sockets on a link with each of libzmq's that it can
// talk to, in every way that the tables here span, and exchanges messages both
// ways. The number of links is worked out twice: when the links are made, and when they
// have been run. matrix_link_test.go runs one link, matrix_refusal_test.go has the links
// that must not come about.

// kind describes a type of socket to the matrix.
type kind struct {
	socketType     zmtp.SocketType
	open           func(sockets.Options) (socket, error)
	sends, receive bool
	// turn: of two types the one with the smaller number sends first.
	turn int
}

func opens[S socket](create func(sockets.Options) (S, error)) func(sockets.Options) (socket, error) {
	return func(o sockets.Options) (socket, error) { return create(o) }
}

var kinds = []kind{
	{zmtp.TypeReq, opens(sockets.NewReq), true, true, 1},
	{zmtp.TypeRep, opens(sockets.NewRep), true, true, 4},
	{zmtp.TypePair, opens(sockets.NewPair), true, true, 1},
	{zmtp.TypeDealer, opens(sockets.NewDealer), true, true, 2},
	{zmtp.TypeRouter, opens(sockets.NewRouter), true, true, 3},
	{zmtp.TypePub, opens(sockets.NewPub), true, false, 1},
	{zmtp.TypeSub, opens(sockets.NewSub), false, true, 4},
	{zmtp.TypeXPub, opens(sockets.NewXPub), true, true, 1},
	{zmtp.TypeXSub, opens(sockets.NewXSub), true, true, 4},
	{zmtp.TypePush, opens(sockets.NewPush), true, false, 1},
	{zmtp.TypePull, opens(sockets.NewPull), false, true, 4},
}

var sides = []side{weBind, theyBind}

// transports make the endpoint that a link is bound to, and its name.
var transports = []struct {
	name     string
	endpoint func(dir string, link int) string
}{
	{"tcp", func(string, int) string { return anyPort }},
	{"ipc", func(dir string, link int) string { return fmt.Sprintf("ipc://%s/%d", dir, link) }},
}

// matrixShapes are the messages of each link: empty, on both sides of the size
// at which frames change their form, in parts with an empty one, and large: larger
// than one read.
var matrixShapes = sync.OnceValue(func() []shape {
	large := 1 << 20
	if testing.Short() {
		large = 2 * buf.Large
	}
	return []shape{{0}, {255}, {256}, {5, 0, 300}, {large}}
})

// pair is a type of ours with one of libzmq's.
type pair struct{ ours, theirs kind }

// pairs lists those that can, or cannot, talk to each other.
func pairs(compatible bool) (all []pair) {
	for _, a := range kinds {
		for _, b := range kinds {
			if zmtp.Compatible(a.socketType, b.socketType) == compatible {
				all = append(all, pair{a, b})
			}
		}
	}
	return all
}

// weSend and theySend say which ways messages can go. An XSUB's go to an XPUB,
// but a PUB takes none.
func (p pair) weSend() bool   { return p.ours.sends && p.theirs.receive }
func (p pair) theySend() bool { return p.theirs.sends && p.ours.receive }

// weBegin says whether our side sends first.
func (p pair) weBegin() bool { return p.ours.turn <= p.theirs.turn }

// exchanges is how many messages a link of the pair carries.
func (p pair) exchanges() (n int) {
	for _, way := range []bool{p.weSend(), p.theySend()} {
		if way {
			n += len(matrixShapes())
		}
	}
	return n
}

// Identities of both ends, where the type has one.
const (
	ourIdentity   = "ours"
	theirIdentity = "theirs"
)

// lead is the frames in front of a message as the application of a socket sees
// it: the identity of a ROUTER's peer, and the end of the envelope, which only
// REQ and REP deal with themselves.
func lead(self, peer zmtp.SocketType, peerIdentity string) (frames [][]byte) {
	if self == zmtp.TypeRouter {
		frames = append(frames, []byte(peerIdentity))
	}
	if self == zmtp.TypeRouter && peer == zmtp.TypeReq || self == zmtp.TypeDealer && peer == zmtp.TypeRep {
		frames = append(frames, []byte{})
	}
	return frames
}

// identified says whether a socket of the type has an identity.
func identified(t zmtp.SocketType) bool {
	return t == zmtp.TypeReq || t == zmtp.TypeDealer || t == zmtp.TypeRouter
}

// matrixLink is one pair of sockets.
type matrixLink struct {
	pair
	number    int
	who       side
	transport string
	endpoint  string // to bind
	security  security
}

func (l *matrixLink) String() string {
	return fmt.Sprintf("%v-%v %s, %s, %v", l.ours.socketType, l.theirs.socketType, l.who, l.transport, l.security)
}

// matrix is the state that all links share.
type matrix struct {
	peer *interop.Process
	dir  string // for ipc
	next int    // number of the next link

	links, exchanges, refusals atomic.Int64
}

// matrixWorkers is how many links are run at the same time.
const matrixWorkers = 4

func newMatrix(t *testing.T) *matrix {
	t.Helper()
	interop.Require(t)
	dir, err := os.MkdirTemp("", "m-") // t.TempDir's names are too long for ipc
	check(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	return &matrix{peer: interop.Python(t, "zmq_matrix.py", credentialArguments()...), dir: filepath.ToSlash(dir)}
}

// span makes a link for each of the pairs, for each side that binds, transport
// and kind of security.
func (m *matrix) span(pairs []pair, securities []security) (all []*matrixLink) {
	for _, p := range pairs {
		for _, s := range securities {
			for _, who := range sides {
				for _, tr := range transports {
					all = append(all, &matrixLink{
						pair: p, number: m.next, who: who, transport: tr.name, endpoint: tr.endpoint(m.dir, m.next), security: s,
					})
					m.next++
				}
			}
		}
	}
	return all
}

// each runs every link as a test of its own, some at a time.
func (m *matrix) each(t *testing.T, links []*matrixLink, run func(*testing.T, *matrixLink)) {
	todo := make(chan *matrixLink)
	var wg sync.WaitGroup
	for range matrixWorkers {
		wg.Go(func() {
			for l := range todo {
				t.Run(l.String(), func(t *testing.T) { run(t, l) })
			}
		})
	}
	for _, l := range links {
		todo <- l
	}
	close(todo)
	wg.Wait()
}

// selected says that only some of the links were asked for, so that numbers do
// not matter.
func selected() bool {
	for _, name := range []string{"test.run", "test.skip"} {
		if strings.Contains(flag.Lookup(name).Value.String(), "/") {
			return true
		}
	}
	return false
}

// counts compares a count with the number in the tables.
func counts(t *testing.T, what string, got int64, want int) {
	t.Helper()
	t.Logf("%d %s with libzmq %s", got, what, interop.Version())
	if got != int64(want) && !selected() {
		t.Errorf("%d %s, but the tables have %d", got, what, want)
	}
}

// TestInteropMatrix exchanges messages on all links that the tables span.
func TestInteropMatrix(t *testing.T) {
	t.Parallel()
	m := newMatrix(t)
	started := time.Now()
	all := pairs(true)
	if len(all) != 21 {
		t.Errorf("%d pairs of types, but RFC 37 has 21", len(all))
	}
	secured := securities(noFault, fits)
	m.each(t, m.span(all, secured), m.exchange)
	t.Logf("in %v", time.Since(started).Round(time.Millisecond))

	each := len(sides) * len(transports) * len(secured)
	exchanges := 0
	for _, p := range all {
		exchanges += each * p.exchanges()
	}
	counts(t, "links", m.links.Load(), each*len(all))
	counts(t, "messages", m.exchanges.Load(), exchanges)
}

// filling is the filling of large messages; zmq_matrix.py makes the same.
var filling = sync.OnceValue(func() []byte {
	b := make([]byte, 1<<20)
	h := sha3.NewSHAKE128()
	h.Write([]byte("matrix"))
	h.Read(b)
	return b
})

// content is a frame that no other one is equal to, if it is not short.
func content(link int, side string, shape, frame, size int) []byte {
	b := fmt.Appendf(make([]byte, 0, size+64), "link %d %s %d/%d ", link, side, shape, frame)
	return append(b, filling()[:max(0, size-len(b))]...)[:size]
}

// message is the i-th message of a side.
func (l *matrixLink) message(side string, i int, lead [][]byte) [][]byte {
	frames := append([][]byte(nil), lead...)
	for j, size := range matrixShapes()[i] {
		frames = append(frames, content(l.number, side, i, j, size))
	}
	return frames
}

// call sends the program a command about a link, and waits for its answer.
func (m *matrix) call(ctx context.Context, op string, l *matrixLink, args interop.Op, result any) error {
	return m.start(op, l, args).Wait(ctx, result)
}

func (m *matrix) start(op string, l *matrixLink, args interop.Op) *interop.Pending {
	line := interop.Op{"op": op, "link": l.number}
	for name, value := range args {
		line[name] = value
	}
	return m.peer.Start(line)
}
