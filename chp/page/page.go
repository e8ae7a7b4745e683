// Package page is what an operator sees of a server in a browser: its rate, its clients, its keys as a
// tree, their history, and changes as they come. "chp serve --http" has it at /; it needs package
// admin beside it, and package httpkv for everything about keys.
//
// It is one page of plain HTML, CSS and JavaScript, embedded as it is in the tree, so nothing is
// built, and nothing loaded from elsewhere: a policy (Content-Security-Policy) forbids it. Nothing that comes from the
// map or from a client is used as HTML. What the page does it does with requests of its own: whoever
// may not read or write something over HTTP cannot do it here.
package page

import (
	"bytes"
	"embed"
	"html/template"
	"net/http"
)

//go:embed index.html page.css page.js page.svg
var files embed.FS

// Options say what there is beside the page.
type Options struct {
	// Door: /v1/ of package httpkv is there. Without it the page has no keys and no changes.
	Door bool
	// Write: the door lets requests change the map.
	Write bool
}

// types are the files and their types. The page itself is index.html.
var types = map[string]string{
	"/page.css": "text/css; charset=utf-8", "/page.js": "text/javascript; charset=utf-8", "/page.svg": "image/svg+xml",
}

// Handles reports whether a request is one for a handler of New.
func Handles(r *http.Request) bool { return r.URL.Path == "/" || types[r.URL.Path] != "" }

// New returns the handler of /, /page.css, /page.js and /page.svg, and of no other path. It is safe for
// concurrent use.
func New(o Options) http.Handler {
	door := ""
	switch {
	case o.Door && o.Write:
		door = "write"
	case o.Door:
		door = "read"
	}
	var index bytes.Buffer
	if err := template.Must(template.ParseFS(files, "index.html")).Execute(&index, struct{ Door string }{door}); err != nil {
		panic(err) // it is embedded
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		header.Set("X-Content-Type-Options", "nosniff")
		header.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
		header.Set("Referrer-Policy", "no-referrer")
		header.Set("Cache-Control", "no-cache")
		switch kind := types[r.URL.Path]; {
		case r.Method != http.MethodGet && r.Method != http.MethodHead:
			header.Set("Allow", "GET, HEAD")
			http.Error(w, "the page is only read", http.StatusMethodNotAllowed)
		case r.URL.Path == "/":
			header.Set("Content-Type", "text/html; charset=utf-8")
			_, _ = w.Write(index.Bytes()) // the asker is gone
		case kind != "":
			b, err := files.ReadFile(r.URL.Path[1:])
			if err != nil {
				panic(err) // it is embedded
			}
			header.Set("Content-Type", kind)
			_, _ = w.Write(b)
		default:
			http.NotFound(w, r)
		}
	})
}
