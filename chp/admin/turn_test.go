package admin

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
)

// More than maxProbes requests at once are answered one after the other, and in vain only if that takes too long.
func TestRequestsWaitForTheirTurn(t *testing.T) {
	t.Parallel()
	for _, answers := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			p, slow := make(probes, maxProbes), make(chan struct{})
			for range maxProbes {
				go within(t.Context(), p, func() int { <-slow; return 0 })
			}
			synctest.Wait()
			got := make(chan error, 1)
			go func() {
				v, err := within(t.Context(), p, func() int { return 7 })
				if err == nil && v != 7 {
					t.Errorf("got %d", v)
				}
				got <- err
			}()
			synctest.Wait()
			if len(got) > 0 {
				t.Error("it did not wait")
			}
			if answers {
				close(slow)
				if err := <-got; err != nil {
					t.Error(err)
				}
				return
			}
			if err := <-got; err != errBusy {
				t.Errorf("got %v", err)
			}
			close(slow)
		})
	}
}

// So it is with metrics.
func TestScrapesWaitForTheirTurn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		slow := make(chan struct{})
		h := inTurn(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-slow }))
		codes := make(chan int)
		for range maxProbes + 1 {
			go func() {
				w := httptest.NewRecorder()
				h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
				codes <- w.Code
			}()
		}
		if code := <-codes; code != http.StatusServiceUnavailable { // the one that waited, after its time
			t.Errorf("got %d", code)
		}
		close(slow)
		for range maxProbes {
			if code := <-codes; code != http.StatusOK {
				t.Errorf("got %d", code)
			}
		}
	})
}
