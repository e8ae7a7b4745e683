package browser

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"clustermap/internal/commandtest"

	"github.com/chromedp/chromedp"
)

var (
	program  *commandtest.Program
	chromium context.Context // of the browser, in which each test has a session of its own
)

// pictures is where the tests leave what they have seen, for people.
var (
	pictures = flag.String("pictures", "", "`folder` for pictures of the page")
	readme   = flag.String("readme", "", "`file` for the picture of README, which takes two minutes")
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	flag.Parse()
	dir, err := os.MkdirTemp("", "browser-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	// Not with the race detector: the server's own tests have it.
	if program, err = commandtest.Build(filepath.Join("..", "..", "cmd", "chp"), dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.NoSandbox, // for root, and for containers: it sees pages of this test only
		chromedp.DisableGPU,
		chromedp.UserDataDir(filepath.Join(dir, "profile")),
		// Nothing is asked outside of this machine.
		chromedp.Flag("no-proxy-server", true),
		chromedp.Flag("host-resolver-rules", "MAP * ~NOTFOUND, EXCLUDE 127.*"),
		chromedp.Flag("disable-component-update", true),
	)
	all, end := chromedp.NewExecAllocator(context.Background(), options...)
	defer end()
	tab, closeAll := chromedp.NewContext(all)
	defer closeAll()
	if err := chromedp.Do(tab); err != nil {
		fmt.Fprintf(os.Stderr, "no browser (on Debian: apt-get install chromium): %v\n", err)
		return 1
	}
	chromium = tab
	return m.Run()
}
