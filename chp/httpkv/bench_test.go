package httpkv

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"clustermap/chp"
	"clustermap/internal/testenv"
)

// pipelined makes n requests over several connections, on each of which some are on their way.
func pipelined(b *testing.B, request string) {
	b.Helper()
	s := served(b, chp.ServerOptions{})
	testenv.Must(b, s.Set(b.Context(), "/bench/key", make([]byte, 100)))
	h := New(Options{Write: true})
	h.Attach(s)
	web := httptest.NewServer(h)
	defer func() { h.Close(); web.Close() }()
	const connections, ahead = 8, 32
	errs := make(chan error, 2*connections)
	b.ResetTimer()
	for i := range connections {
		n := b.N / connections
		if i == 0 {
			n = b.N - n*(connections-1)
		}
		c, err := net.Dial("tcp", web.Listener.Addr().String())
		testenv.Must(b, err)
		defer c.Close()
		room := make(chan struct{}, ahead)
		go func() {
			out := bufio.NewWriter(c)
			for range n {
				select {
				case room <- struct{}{}:
				default: // before it waits
					_ = out.Flush()
					room <- struct{}{}
				}
				_, _ = out.WriteString(request)
			}
			errs <- out.Flush()
		}()
		go func() {
			in := bufio.NewReader(c)
			for range n {
				answer, err := http.ReadResponse(in, nil)
				if err == nil {
					_, err = io.Copy(io.Discard, answer.Body)
				}
				if err == nil && answer.StatusCode >= 300 {
					err = fmt.Errorf("%s", answer.Status)
				}
				if err != nil {
					errs <- err
					return
				}
				<-room
			}
			errs <- nil
		}()
	}
	for range 2 * connections {
		testenv.Must(b, <-errs)
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "requests/s")
}

func BenchmarkGet(b *testing.B) {
	pipelined(b, "GET /v1/kv/bench/key HTTP/1.1\r\nHost: localhost\r\n\r\n")
}

func BenchmarkPut(b *testing.B) {
	pipelined(b, "PUT /v1/kv/bench/key HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n"+string(make([]byte, 100)))
}
