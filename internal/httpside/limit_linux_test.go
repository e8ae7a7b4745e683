package httpside

import (
	"net"
	"net/http"
	"testing"

	"clustermap/internal/testenv"
)

// Whoever opens connections and says nothing keeps nobody else out: one address has half of them at most, and has them again
// when they have ended.
func TestOneAddressHasHalfOfTheConnections(t *testing.T) {
	s, err := Listen(t.Context(), "127.0.0.1:0", http.NotFoundHandler(), func(err error) { t.Error(err) })
	testenv.Must(t, err)
	defer s.Close()
	ask := func(from string) error {
		dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
		client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: dialer.DialContext}}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+s.Addr().String(), nil)
		testenv.Must(t, err)
		answer, err := client.Do(r)
		if err == nil {
			answer.Body.Close()
		}
		return err
	}
	var silent []net.Conn
	for range maxConnections {
		c, err := net.Dial("tcp", s.Addr().String())
		testenv.Must(t, err)
		defer c.Close()
		silent = append(silent, c)
	}
	testenv.Must(t, ask("127.0.0.2"))
	if err := ask("127.0.0.1"); err == nil {
		t.Error("an address has more than half of the connections")
	}
	for _, c := range silent {
		c.Close()
	}
	testenv.Eventually(t, "there is room again", func() bool { return ask("127.0.0.1") == nil })
}
