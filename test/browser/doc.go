// Package browser tests the page of a server (chp/page) with the real things on both ends: "chp serve --http", and a
// browser, Chromium, which chromedp drives over the DevTools protocol.
//
// It waits for what is to be seen in the page, and for nothing else. Whatever a browser complains of ends a test:
// an exception, an error or a warning on the console, a fault of the policy (Content-Security-Policy), a request that
// fails, a request to another origin. What a test provokes, such as the 412 of a conflict, it says beforehand.
//
// The module is not part of go test ./... of the library; ".ci/run browser" installs the browser and runs it, or:
//
//	cd test/browser && go test ./...
package browser
