package httpside

import (
	"fmt"
	"io"
	"net/http"
	"testing"

	"clustermap/internal/testenv"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Only names of the server are answered, and nothing runs after Close.
func TestOnlyNamesOfTheServerAreAnswered(t *testing.T) {
	h := Only([]string{"own.example"}, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "answer") }))
	s, err := Listen(t.Context(), "127.0.0.1:0", h, func(err error) { t.Error(err) })
	testenv.Must(t, err)
	defer s.Close()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for host, want := range map[string]int{"localhost:1": 200, "[::1]": 200, "OWN.example.": 200, "evil.example": 421, "own.example.evil": 421} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+s.Addr().String(), nil)
		testenv.Must(t, err)
		r.Host = host
		answer, err := client.Do(r)
		testenv.Must(t, err)
		_, _ = io.Copy(io.Discard, answer.Body)
		answer.Body.Close()
		if answer.StatusCode != want {
			t.Errorf("%s: %d, want %d", host, answer.StatusCode, want)
		}
	}
	if _, err := Listen(t.Context(), s.Addr().String(), h, nil); err == nil {
		t.Error("one address for two")
	}
	(*Side)(nil).Close()
}
