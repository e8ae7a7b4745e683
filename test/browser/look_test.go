package browser

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"clustermap/chp"
	"clustermap/chp/access"
	"clustermap/internal/testenv"
	"clustermap/sockets"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

// shop is a server as one has it: with flags, configuration and a registry of services, which are clients with names.
func shop(t *testing.T) (*server, []*chp.Client) {
	t.Helper()
	ctx := testenv.Context(t)
	names := []string{"checkout", "search", "billing", "gateway"}
	var file strings.Builder
	token, hash := access.NewToken()
	secret, err := access.HashPassword("secret of a service")
	testenv.Must(t, err)
	for _, name := range names {
		fmt.Fprintf(&file, "[users.%s]\nplain = '%s'\n", name, secret)
	}
	fmt.Fprintf(&file, "[users.anna]\ntoken = ['%s']\n[[rules]]\nwho = ['*']\nread = ['']\nwrite = ['']\n", hash)
	rights := filepath.Join(t.TempDir(), "access.toml")
	testenv.Must(t, os.WriteFile(rights, []byte(file.String()), 0o600))
	s := serve(t, "--plain", "--access", rights, "--stamp", "--history", "16", "--http-write")
	var clients []*chp.Client
	subtrees := map[string][]string{"search": {"/flags/search/", "/registry/search/"}, "billing": {"/config/billing/", "/flags/checkout/"}}
	for _, name := range names {
		c := s.client(sockets.Security{PlainUsername: name, PlainPassword: "secret of a service"}, subtrees[name]...)
		clients = append(clients, c)
	}
	set := func(key, value string, o ...chp.SetOption) {
		_, err := clients[3].SetSync(ctx, key, []byte(value), o...)
		testenv.Must(t, err)
	}
	for _, percent := range []string{"0", "5", "25", "50"} {
		_, err := clients[0].SetSync(ctx, "/flags/checkout/new-basket", fmt.Appendf(nil, `{"on": true, "percent": %s, "countries": ["nl", "de", "at"]}`, percent))
		testenv.Must(t, err)
	}
	set("/flags/checkout/express-pay", `{"on": false}`)
	set("/flags/search/synonyms", `{"on": true, "percent": 100}`)
	set("/flags/search/vectors", `{"on": true, "percent": 10}`)
	set("/config/billing/currency", "EUR")
	set("/config/billing/retries", "5")
	for service, n := range map[string]int{"checkout": 3, "search": 2, "billing": 2} {
		for i := range n {
			set(fmt.Sprintf("/registry/%s/%d", service, i+1), fmt.Sprintf("10.4.%d.%d:8080", len(service), 10+i), chp.WithTTL(time.Hour))
		}
	}
	s.token = token
	return s, clients
}

// visit opens a view of the shop with a token.
func (s *server) visit(t *testing.T, hash string, width, height int64, dark bool) *tab {
	t.Helper()
	b := open(t, s.url, width, height)
	b.provokes(`status of 401 `)
	if dark {
		call(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: "dark"}}})
	}
	b.run("sessionStorage.setItem('token', " + quote(s.token) + "); location.hash = " + quote(hash))
	return b
}

type view struct{ name, hash, whole string }

// views of the page, and what is there when one of them is whole.
var views = []view{
	{"overview", "#overview", `figure("Keys") >= 13 && all("#chart .curve").length === 1 && rows("servers").length === 1`},
	{"clients", "#clients", `rows("clients-table").length === 4 && rows("clients-table").every(r => r[5] !== "")`},
	{"keys", "#keys/flags/checkout/new-basket", `lines("#history").length === 4 && button("Save") && all("#tree .key").length >= 13`},
	{"changes", "#changes", `rows("log").length > 5`},
}

// long is a text that has nowhere to break.
var long = strings.Repeat("w", 200)

// In light and in dark, on a phone and on a desk, everything can be read, and nothing is wider than the window.
func TestPageCanBeReadEverywhere(t *testing.T) {
	t.Parallel()
	s, clients := shop(t)
	for range 2 {
		s.set(clients[0], "/long/"+long, strings.Repeat(long, 20))
	}
	writing(t, clients[0], "/registry/checkout/1", []byte("10.4.8.10:8080"))
	for _, width := range []int64{400, 1280} {
		for _, theme := range []string{"light", "dark"} {
			t.Run(fmt.Sprintf("%d %s", width, theme), func(t *testing.T) {
				t.Parallel()
				b := s.visit(t, "#overview", width, 900, theme == "dark")
				for _, v := range append(views[:len(views):len(views)], view{"long", "#keys/long/" + long, `lines("#history").length === 2 && button("Save")`}) {
					b.run("location.hash = " + quote(v.hash))
					b.eventually(v.whole)
					if got := get[float64](b, "document.documentElement.scrollWidth"); got > float64(width) {
						t.Errorf("%s needs a window of %v", v.name, got)
					}
					for _, pale := range get[[]string](b, palest) {
						t.Errorf("%s cannot be read: %s", v.name, pale)
					}
					b.picture(fmt.Sprintf("%s-%d-%s", v.name, width, theme))
				}
				if isDark := b.is(`getComputedStyle(document.body).backgroundColor.match(/\d+/g).every(c => c < 64)`); isDark != (theme == "dark") {
					t.Errorf("it is dark: %v", isDark)
				}
			})
		}
	}
}

// palest are texts whose contrast with what is behind them is under 4.5 to 1 (WCAG 2.2, 1.4.3).
const palest = `(() => {
	const parse = c => { const [r, g, b, a = 1] = c.match(/[\d.]+/g).map(Number); return {r, g, b, a}; };
	const light = ({r, g, b}) => [[.2126, r], [.7152, g], [.0722, b]].reduce((sum, [share, v]) => sum + share * ((v /= 255) <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4), 0);
	const behind = e => { for (; e; e = e.parentElement) { const c = parse(getComputedStyle(e).backgroundColor); if (c.a > 0) return c; } return {r: 255, g: 255, b: 255}; };
	const pale = [];
	for (const e of all("body *")) {
		const own = e.matches("input, textarea") ? e.value : [...e.childNodes].filter(n => n.nodeType === 3).map(n => n.data.trim()).join("");
		if (!own || e.closest("svg") || e.getAnimations().length) continue;
		const [one, two] = [light(parse(getComputedStyle(e).color)), light(behind(e))].sort((a, b) => b - a);
		if ((one + .05) / (two + .05) < 4.5) pale.push(own + " (" + e.tagName + "." + e.className + "): " + ((one + .05) / (two + .05)).toFixed(2));
	}
	return pale;
})()`

// TestPicture makes the picture of README, if that is asked for: two views beside each other, after some minutes of
// updates, now more and now less of them.
func TestPicture(t *testing.T) {
	if *readme == "" {
		return
	}
	s, clients := shop(t)
	overview, keys := s.visit(t, "#overview", 640, 800, false), s.visit(t, views[2].hash, 640, 800, false)
	ctx, cancel := context.WithCancel(testenv.Context(t))
	written := make(chan struct{})
	go func() {
		defer close(written)
		each := time.NewTicker(50 * time.Millisecond)
		defer each.Stop()
		for i := range math.MaxInt {
			for n := range 6 + int(4*math.Sin(float64(i)/200)) + i*i%5 {
				_ = clients[n%2].Set(ctx, fmt.Sprintf("/registry/checkout/%d", 1+n%3), fmt.Appendf(nil, "10.4.8.%d:8080", 10+n%3), chp.WithTTL(time.Hour))
			}
			select {
			case <-ctx.Done():
				return
			case <-each.C:
			}
		}
	}()
	defer func() {
		cancel()
		<-written
	}()
	overview.eventually(`document.querySelector("#chart .curve")?.getAttribute("points").split(" ").length >= 120`)
	keys.eventually(views[2].whole)
	var both []image.Image
	for _, b := range []*tab{overview, keys} {
		shot, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
		testenv.Must(t, err)
		m, err := png.Decode(bytes.NewReader(shot))
		testenv.Must(t, err)
		both = append(both, m)
	}
	var file bytes.Buffer
	testenv.Must(t, (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&file, beside(both[0], both[1])))
	testenv.Must(t, os.WriteFile(*readme, file.Bytes(), 0o644))
}

// beside returns two pictures beside each other, with a line around, in the 256 colours that they have most of.
func beside(left, right image.Image) image.Image {
	const gap, line = 12, 1
	size := left.Bounds().Size()
	whole := image.NewRGBA(image.Rect(0, 0, 2*size.X+gap+4*line, size.Y+2*line))
	for i, m := range []image.Image{left, right} {
		at := image.Rect(0, 0, size.X+2*line, size.Y+2*line).Add(image.Pt(i*(size.X+2*line+gap), 0))
		draw.Draw(whole, at, image.NewUniform(color.Gray{0xc8}), image.Point{}, draw.Src)
		draw.Draw(whole, at.Inset(line), m, m.Bounds().Min, draw.Src)
	}
	counts := map[color.RGBA]int{}
	for i := 0; i < len(whole.Pix); i += 4 {
		counts[color.RGBA{whole.Pix[i], whole.Pix[i+1], whole.Pix[i+2], whole.Pix[i+3]}]++
	}
	most := slices.SortedFunc(maps.Keys(counts), func(a, b color.RGBA) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a.R, b.R), cmp.Compare(a.G, b.G), cmp.Compare(a.B, b.B))
	})
	var palette color.Palette
	for _, c := range most[:min(len(most), 256)] {
		palette = append(palette, c)
	}
	reduced := image.NewPaletted(whole.Bounds(), palette)
	draw.Draw(reduced, reduced.Bounds(), whole, image.Point{}, draw.Src)
	return reduced
}
