package interop

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"clustermap/internal/interop"
	"clustermap/sockets"
)

// ipcEndpoints are a path and, where there are such, an abstract name.
func ipcEndpoints(t *testing.T) map[string]string {
	t.Helper()
	dir, err := os.MkdirTemp("", "s-")
	check(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	all := map[string]string{"path": "ipc://" + filepath.Join(dir, "s")}
	if runtime.GOOS == "linux" {
		all["abstract"] = "ipc://@" + filepath.Base(dir)
	}
	return all
}

// TestInteropIPC: messages of many shapes to and from libzmq over ipc, either
// way round.
func TestInteropIPC(t *testing.T) {
	t.Parallel()
	for _, who := range []side{weBind, theyBind} {
		for form, endpoint := range ipcEndpoints(t) {
			t.Run(string(who)+" "+form, func(t *testing.T) {
				t.Parallel()
				ctx := timeLimit(t)
				dealer := open(t, sockets.NewDealer, sockets.Options{Identity: []byte("me")})
				var router *interop.Process
				if who == weBind {
					check(t, dealer.Bind(ctx, endpoint))
					router = python(t, "ROUTER", "--connect", endpoint)
				} else {
					router = python(t, "ROUTER", "--bind", endpoint)
					if router.Endpoint != endpoint {
						t.Errorf("libzmq is bound as %s", router.Endpoint)
					}
					check(t, dealer.Connect(endpoint))
				}
				for i, s := range shapes(false) {
					m := interop.Frames(i, 0, s)
					check(t, dealer.Send(ctx, m...))
					got := pythonReceives(router, 1)[0]
					wantDescribed(t, got[1:], m)
					sent := pythonSends(router, [][]byte{[]byte("me")}, i, s, 1)
					back, err := dealer.Recv(ctx)
					check(t, err)
					wantFrames(t, back, interop.Frames(i, 0, s))
					sent.Done(nil)
				}
			})
		}
	}
}

// TestInteropIPCReplaced: libzmq takes a path over that we are bound to, and our
// Close leaves it the path.
func TestInteropIPCReplaced(t *testing.T) {
	t.Parallel()
	ctx := timeLimit(t)
	endpoint := ipcEndpoints(t)["path"]
	ours := open(t, sockets.NewRouter, sockets.Options{})
	check(t, ours.Bind(ctx, endpoint))
	theirs := python(t, "ROUTER", "--bind", endpoint)
	check(t, ours.Close())
	dealer := open(t, sockets.NewDealer, sockets.Options{Identity: []byte("me")})
	check(t, dealer.Connect(endpoint))
	check(t, dealer.Send(ctx, []byte("hello")))
	wantDescribed(t, pythonReceives(theirs, 1)[0], [][]byte{[]byte("me"), []byte("hello")})
}
