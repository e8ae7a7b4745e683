package browser

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"clustermap/internal/testenv"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// tab is a tab of the browser, in a session of its own.
type tab struct {
	t      *testing.T
	ctx    context.Context
	origin string

	mu         sync.Mutex
	complaints []string
	provoked   []*regexp.Regexp
}

// script is there in each page: what tests look for.
const script = `
addEventListener("securitypolicyviolation", e => console.error("policy: " + e.violatedDirective + " " + e.blockedURI));
const seen = e => e && e.checkVisibility();
const all = selector => [...document.querySelectorAll(selector)].filter(seen);
const text = selector => all(selector)[0]?.textContent ?? "";
const button = name => all("button").find(b => b.textContent === name);
const figure = name => Number(all("#figures div").find(d => d.firstChild.textContent === name)?.lastChild.textContent.replaceAll(",", ""));
const rows = table => all("#" + table + " tbody tr").map(r => [...r.cells].map(c => c.textContent));
const lines = selector => all(selector + " tbody tr");
const key = name => all("#tree .key").find(b => b.title === name);
`

// open opens a page in a new session, with a width and a height.
func open(t *testing.T, url string, size ...int64) *tab {
	t.Helper()
	origin, _, _ := strings.Cut(url, "#")
	b := &tab{t: t, origin: origin}
	// A machine that is too busy answers so after two seconds, and the page asks again.
	b.provokes(`status of 503 .*/(status|metrics|clients)$`)
	ctx, cancel := chromedp.NewContext(chromium, chromedp.WithNewBrowserContext(), chromedp.WithListener(b.hear))
	b.ctx = ctx
	t.Cleanup(func() {
		b.leave()
		cancel()
	})
	if size == nil {
		size = []int64{1200, 800}
	}
	testenv.Must(t, chromedp.Do(ctx)) // the tab lasts as long as the first context that it is used with
	call(b, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: script})
	// As if nobody looked at another one: several tests run at once.
	call(b, emulation.SetFocusEmulationEnabled, emulation.SetFocusEmulationEnabledParams{Enabled: true})
	b.do(
		chromedp.EmulateViewport(size[0], size[1]),
		chromedp.Navigate(url),
	)
	b.run("window.begun = true") // it is gone when the page is loaded again
	return b
}

// hear takes what the browser complains of.
func (b *tab) hear(event any) {
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		b.complain("exception: " + e.ExceptionDetails.Text)
		if e.ExceptionDetails.Exception != nil {
			b.complain(e.ExceptionDetails.Exception.Description)
		}
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.ConsoleAPICalledTypeError || e.Type == runtime.ConsoleAPICalledTypeWarning || e.Type == runtime.ConsoleAPICalledTypeAssert {
			all := []string{string(e.Type)}
			for _, a := range e.Args {
				all = append(all, string(a.Value), a.Description)
			}
			b.complain(strings.Join(all, " "))
		}
	case *log.EventEntryAdded:
		if e.Entry.Level == log.EntryLevelError || e.Entry.Level == log.EntryLevelWarning {
			b.complain(fmt.Sprintf("%s: %s %s", e.Entry.Source, e.Entry.Text, e.Entry.URL))
		}
	case *network.EventRequestWillBeSent:
		if !strings.HasPrefix(e.Request.URL, b.origin) {
			b.complain("it asks for " + e.Request.URL)
		}
	case *page.EventJavascriptDialogOpening:
		b.complain("a dialog: " + e.Message)
	}
}

func (b *tab) complain(text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.complaints = append(b.complaints, text)
}

// provokes says that the browser may complain of something.
func (b *tab) provokes(pattern string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.provoked = append(b.provoked, regexp.MustCompile(pattern))
}

// leave checks what the browser has complained of, and that the page was never loaded again.
func (b *tab) leave() {
	if b.t.Failed() {
		return
	}
	if !b.is("window.begun") {
		b.t.Error("the page was loaded again")
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range b.complaints {
		if !slices.ContainsFunc(b.provoked, func(p *regexp.Regexp) bool { return p.MatchString(c) }) {
			b.t.Errorf("the browser complains: %s", c)
		}
	}
}

// limited returns a context that only ends waits in vain, in time for the test to tell of them.
func (b *tab) limited() (context.Context, context.CancelFunc) {
	end := time.Now().Add(testenv.Hang)
	if last, ok := b.t.Deadline(); ok {
		end = last.Add(-time.Until(last) / 4)
	}
	return context.WithDeadline(b.ctx, end)
}

func (b *tab) do(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := b.limited()
	defer cancel()
	testenv.Must(b.t, chromedp.Do(ctx, actions...))
}

// call calls a method of the protocol.
func call[P, R any](b *tab, method cdp.Command[P, R], params P) {
	b.t.Helper()
	ctx, cancel := b.limited()
	defer cancel()
	_, err := chromedp.Call(ctx, method, params)
	testenv.Must(b.t, err)
}

// evaluate returns what an expression is, when that is there if it is a promise.
func evaluate[T any](b *tab, expression string) (T, error) {
	ctx, cancel := b.limited()
	defer cancel()
	return chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
}

// get returns what an expression is.
func get[T any](b *tab, expression string) T {
	b.t.Helper()
	v, err := evaluate[T](b, expression)
	if err != nil {
		b.t.Fatalf("%s: %v", expression, err)
	}
	return v
}

// run evaluates statements.
func (b *tab) run(statements string) {
	b.t.Helper()
	get[int](b, statements+"; 0")
}

func (b *tab) is(condition string) bool {
	b.t.Helper()
	return get[bool](b, "Boolean("+condition+")")
}

// eventually waits until a condition holds in the page.
func (b *tab) eventually(condition string) {
	b.t.Helper()
	_, err := evaluate[bool](b, `new Promise(done => {
		const look = () => { if (`+condition+`) done(true); else setTimeout(look, 20); };
		look();
	})`)
	if err != nil {
		b.t.Fatalf("never: %s: %v\n%s", condition, err, b.report())
	}
}

// report is what is to be seen.
func (b *tab) report() string {
	text, err := evaluate[string](b, `location.href + "\n" + document.body.innerText`)
	if err != nil {
		text = err.Error()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return text + "\n" + strings.Join(b.complaints, "\n")
}

// click clicks what an expression returns, when it is there.
func (b *tab) click(element string) {
	b.t.Helper()
	b.eventually("(e => e && (e.click(), true))(" + element + ")")
}

// write types text where an expression says, in place of what is there.
func (b *tab) write(element, text string) {
	b.t.Helper()
	b.eventually("(e => e && (e.focus(), e.select(), document.activeElement === e))(" + element + ")")
	call(b, input.InsertText, input.InsertTextParams{Text: text})
}

// picture leaves a picture, if that is asked for.
func (b *tab) picture(name string) {
	b.t.Helper()
	if *pictures == "" {
		return
	}
	png, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
	testenv.Must(b.t, err)
	testenv.Must(b.t, os.WriteFile(filepath.Join(*pictures, name+".png"), png, 0o644))
}

// quote is text as JavaScript has it.
func quote(text string) string {
	b, err := json.Marshal(text)
	if err != nil {
		panic(err)
	}
	return string(b)
}
