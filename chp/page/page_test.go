package page_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"clustermap/chp/page"
)

func ask(t *testing.T, o page.Options, method, path string) *http.Response {
	t.Helper()
	w := httptest.NewRecorder()
	page.New(o).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, path, nil))
	return w.Result()
}

// The page knows what there is beside it.
func TestPageKnowsItsDoor(t *testing.T) {
	t.Parallel()
	for want, o := range map[string]page.Options{"": {}, "read": {Door: true}, "write": {Door: true, Write: true}} {
		text, err := io.ReadAll(ask(t, o, http.MethodGet, "/").Body)
		if err != nil || !strings.Contains(string(text), `<meta name="door" content="`+want+`">`) {
			t.Errorf("want %q: %v, %s", want, err, text)
		}
	}
}

// Everything that the page refers to is there, of a type that a browser takes, and may load nothing from
// elsewhere, nor be framed.
func TestPageIsWhole(t *testing.T) {
	t.Parallel()
	for path, kind := range map[string]string{"/": "text/html; charset=utf-8", "/page.css": "text/css; charset=utf-8", "/page.js": "text/javascript; charset=utf-8", "/page.svg": "image/svg+xml"} {
		r := ask(t, page.Options{}, http.MethodGet, path)
		policy := r.Header.Get("Content-Security-Policy")
		if r.StatusCode != 200 || r.Header.Get("Content-Type") != kind || r.Header.Get("X-Content-Type-Options") != "nosniff" || !strings.HasPrefix(policy, "default-src 'none'; script-src 'self'; ") || !strings.Contains(policy, "frame-ancestors 'none'") {
			t.Errorf("%s: %d %v", path, r.StatusCode, r.Header)
		}
		if r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil); !page.Handles(r) {
			t.Errorf("%s is not handled", path)
		}
	}
	for path, method := range map[string]string{"/other": http.MethodGet, "/page.go": http.MethodGet, "/": http.MethodPost} {
		if r := ask(t, page.Options{}, method, path); r.StatusCode < 400 {
			t.Errorf("%s %s: %d", method, path, r.StatusCode)
		}
	}
}
