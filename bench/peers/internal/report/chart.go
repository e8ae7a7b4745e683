package report

import (
	"bytes"
	"fmt"
	"image/color"
	"math"
	"os"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"clustermap/internal/bench/figures"
)

// point is a figure at a place on the X axis.
type point struct {
	X float64
	figures.Summary
}

// line is a series of points.
type line struct {
	Name   string
	Points []point
}

// bar is a figure with a name. Bars of the same series have the same colour.
type bar struct {
	Name, Series string
	figures.Summary
}

// chart is a plot: either lines, or horizontal bars, whose figures are on the X axis.
type chart struct {
	File  string // without a folder
	Title string
	X, Y  string // labels of the axes, with the unit in parentheses
	LogX  bool
	LogY  bool
	Ticks []plot.Tick // of the X axis under lines

	Lines []line
	Bars  []bar
}

// colours can be told apart on white, also by people with colour blindness: those of
// Okabe and Ito, without yellow, then grey, brown and olive. The first one is always
// ours.
var colours = []color.RGBA{
	{0x00, 0x72, 0xB2, 0xFF}, {0xD5, 0x5E, 0x00, 0xFF}, {0x00, 0x9E, 0x73, 0xFF},
	{0xCC, 0x79, 0xA7, 0xFF}, {0xE6, 0x9F, 0x00, 0xFF}, {0x56, 0xB4, 0xE9, 0xFF}, {0x55, 0x55, 0x55, 0xFF}, {0x7A, 0x3B, 0x10, 0xFF},
	{0x80, 0x80, 0x00, 0xFF},
}

// glyphs tell the lines apart where colours do not.
var glyphs = []draw.GlyphDrawer{
	draw.CircleGlyph{}, draw.SquareGlyph{}, draw.TriangleGlyph{}, draw.PyramidGlyph{}, draw.RingGlyph{}, draw.BoxGlyph{}, draw.PlusGlyph{}, draw.CrossGlyph{},
}

const (
	width, height = 20 * vg.Centimeter, 11 * vg.Centimeter
	barHeight     = 0.62 * vg.Centimeter // with the space between two
	small         = 9                    // points
)

// write draws the chart into an SVG file. It has a white background, so that it can be
// read on a dark page, too.
func (c *chart) write(path string) error {
	p := plot.New()
	sans(p)
	p.Title.Text, p.X.Label.Text = c.Title, c.X
	p.Title.Padding = vg.Points(8)
	h := height
	legend := plot.NewLegend()
	var err error
	if len(c.Bars) > 0 {
		h = barHeight*vg.Length(len(c.Bars)) + 3*vg.Centimeter
		c.addBars(p)
	} else {
		err = c.addLines(p, &legend)
	}
	if err != nil {
		return err
	}

	canvas := vgsvg.New(width, h)
	all := draw.New(canvas)
	all.FillPolygon(color.White, []vg.Point{all.Min, {X: all.Max.X, Y: all.Min.Y}, all.Max, {X: all.Min.X, Y: all.Max.Y}})
	inner := draw.Crop(all, vg.Points(8), -vg.Points(12), vg.Points(8), -vg.Points(8))
	if len(c.Lines) > 0 {
		// Beside the plot, where it covers no line.
		legend.Top, legend.Left = true, true
		legend.TextStyle.Font = font.From(plainFont(), small)
		legend.Padding = vg.Points(3)
		legend.ThumbnailWidth = vg.Points(22)
		r := legend.Rectangle(inner)
		space := (r.Max.X-r.Min.X)*slack + vg.Points(10)
		legend.Draw(draw.Crop(inner, inner.Max.X-inner.Min.X-space+vg.Points(10), 0, 0, -vg.Points(36)))
		inner = draw.Crop(inner, 0, -space, 0, 0)
		// plot makes room for this label as if the axis were linear, far too much.
		label := p.X.Label.TextStyle
		label.Rotation, label.XAlign, label.YAlign = math.Pi/2, draw.XCenter, draw.YTop
		inner.FillText(label, vg.Point{X: inner.Min.X, Y: inner.Center().Y}, c.Y)
		inner = draw.Crop(inner, label.Height(c.Y)+vg.Points(6), 0, 0, 0)
	}
	p.Draw(inner)
	var out bytes.Buffer
	if _, err := canvas.WriteTo(&out); err != nil {
		return err
	}
	// A browser may not have the font that the text was measured with. Arial is as wide.
	text := bytes.ReplaceAll(out.Bytes(), []byte("font-family:Liberation Sans;"), []byte("font-family:'Liberation Sans',Arial,Helvetica,sans-serif;"))
	return os.WriteFile(path, text, 0o644)
}

// slack is how much wider a text may be than in the font that it was measured with.
const slack = 1.15

// plainFont is a font without serifs.
func plainFont() font.Font {
	f := plot.DefaultFont
	f.Variant = "Sans"
	return f
}

// sans gives all text of a plot a font without serifs.
func sans(p *plot.Plot) {
	plain := plainFont()
	p.Title.TextStyle.Font = font.From(plain, 12)
	for _, a := range []*plot.Axis{&p.X, &p.Y} {
		a.Label.TextStyle.Font = font.From(plain, 10)
		a.Tick.Label.Font = font.From(plain, small)
	}
}

func (c *chart) addLines(p *plot.Plot, legend *plot.Legend) error {
	addGrid(p, true)
	for i, l := range c.Lines {
		points := make(plotter.XYs, len(l.Points))
		errors := make(plotter.YErrors, len(l.Points))
		for j, at := range l.Points {
			points[j] = plotter.XY{X: at.X, Y: at.Median}
			errors[j].Low, errors[j].High = at.Median-at.Min, at.Max-at.Median
		}
		line, dots, err := plotter.NewLinePoints(points)
		if err != nil {
			return fmt.Errorf("%s: %w", l.Name, err)
		}
		bars, err := plotter.NewYErrorBars(struct {
			plotter.XYs
			plotter.YErrors
		}{points, errors})
		if err != nil {
			return fmt.Errorf("%s: %w", l.Name, err)
		}
		colour := colours[i%len(colours)]
		line.Color, line.Width = colour, vg.Points(1.5)
		dots.Color, dots.Shape, dots.Radius = colour, glyphs[i%len(glyphs)], vg.Points(3)
		bars.Color, bars.Width, bars.CapWidth = colour, vg.Points(1), vg.Points(6)
		p.Add(line, bars, dots)
		legend.Add(l.Name, line, dots)
	}
	scale(&p.X, c.LogX)
	scale(&p.Y, c.LogY)
	if len(c.Ticks) > 0 {
		p.X.Tick.Marker = plot.ConstantTicks(c.Ticks)
	}
	return nil
}

// scale sets the range and the ticks of an axis whose figures have been added.
func scale(a *plot.Axis, log bool) {
	if !log {
		a.Min = min(a.Min, 0)
		a.Tick.Marker = plot.TickerFunc(linearTicks)
		return
	}
	a.Scale, a.Tick.Marker = plot.LogScale{}, plot.TickerFunc(decades)
	if a.Min <= 0 {
		a.Min = min(1, a.Max/10)
	}
	if a.Max <= a.Min {
		a.Max = a.Min * 10
	}
}

func addGrid(p *plot.Plot, horizontal bool) {
	grid := plotter.NewGrid()
	grid.Vertical.Color, grid.Horizontal.Color = color.Gray{0xDD}, color.Gray{0xDD}
	if !horizontal {
		grid.Horizontal.Width = 0
	}
	p.Add(grid)
}

func (c *chart) addBars(p *plot.Plot) {
	addGrid(p, false)
	series := map[string]int{}
	names := make([]string, len(c.Bars))
	low, high := math.Inf(1), 0.0
	for i, b := range c.Bars {
		if _, ok := series[b.Series]; !ok {
			series[b.Series] = len(series)
		}
		low, high = min(low, b.Min), max(high, b.Max)
		names[len(names)-1-i] = b.Name // from below
	}
	p.X.Min, p.X.Max = 0, high*1.02
	if c.LogX && low > 0 {
		// A logarithm has no zero to begin at: a power of ten that leaves the shortest
		// bar some length.
		p.X.Min = math.Pow(10, math.Floor(math.Log10(low/1.5)))
	}
	scale(&p.X, c.LogX)
	p.Add(&barPlotter{bars: c.Bars, series: series})
	p.NominalY(names...)
	longest := vg.Length(0)
	for _, name := range names {
		longest = max(longest, p.Y.Tick.Label.Width(name))
	}
	// A space between names and bars, which an invisible tick makes.
	p.Y.Tick.Length = longest*(slack-1) + vg.Points(3)
	p.Y.Tick.LineStyle = draw.LineStyle{Color: color.White, Width: 0.01}
	p.Y.Min, p.Y.Max = -0.6, float64(len(names))-0.4
}

// barPlotter draws horizontal bars from the beginning of the X axis, which plotter.BarChart
// cannot where that is not 0, with the range of the figures and the median in words.
type barPlotter struct {
	bars   []bar
	series map[string]int // of the colours
}

// y is where the i-th bar is, from above.
func (b *barPlotter) y(i int) float64 { return float64(len(b.bars) - 1 - i) }

func (b *barPlotter) style(p *plot.Plot) draw.TextStyle {
	s := p.X.Tick.Label
	s.XAlign, s.YAlign = draw.XLeft, draw.YCenter
	return s
}

// labelGap is the space between a bar and its label.
const labelGap = 5 * vg.Length(1)

// Plot implements plot.Plotter.
func (b *barPlotter) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	const half, cap = 0.26 * barHeight, 3 * vg.Length(1)
	whisker := draw.LineStyle{Color: color.Black, Width: vg.Points(0.8)}
	for i, bar := range b.bars {
		at, from, to := y(b.y(i)), x(p.X.Min), x(bar.Median)
		c.FillPolygon(colours[b.series[bar.Series]%len(colours)],
			[]vg.Point{{X: from, Y: at - half}, {X: to, Y: at - half}, {X: to, Y: at + half}, {X: from, Y: at + half}})
		if bar.Min < bar.Max {
			least, most := x(bar.Min), x(bar.Max)
			c.StrokeLine2(whisker, least, at, most, at)
			c.StrokeLine2(whisker, least, at-cap, least, at+cap)
			c.StrokeLine2(whisker, most, at-cap, most, at+cap)
		}
		c.FillText(b.style(p), vg.Point{X: x(bar.Max) + labelGap, Y: at}, si(bar.Median))
	}
}

// GlyphBoxes implements plot.GlyphBoxer, for the space that labels need.
func (b *barPlotter) GlyphBoxes(p *plot.Plot) []plot.GlyphBox {
	boxes := make([]plot.GlyphBox, len(b.bars))
	for i, bar := range b.bars {
		boxes[i] = plot.GlyphBox{
			X: p.X.Norm(bar.Max), Y: p.Y.Norm(b.y(i)),
			Rectangle: vg.Rectangle{Max: vg.Point{X: labelGap + b.style(p).Width(si(bar.Median))}},
		}
	}
	return boxes
}

// decades are ticks at powers of ten, and small ones between them.
func decades(least, most float64) (ticks []plot.Tick) {
	for power := math.Floor(math.Log10(least)); ; power++ {
		for m := 1.0; m < 10; m++ {
			v := m * math.Pow(10, power)
			if v > most*1.000001 {
				return ticks
			}
			if v < least*0.999999 {
				continue
			}
			t := plot.Tick{Value: v}
			// Less than two decades have too few powers to read by.
			if m == 1 || most/least < 100 && (m == 2 || m == 5) {
				t.Label = si(v)
			}
			ticks = append(ticks, t)
		}
	}
}

// linearTicks are the ticks of plot, with shorter numbers.
func linearTicks(least, most float64) []plot.Tick {
	ticks := plot.DefaultTicks{}.Ticks(least, most)
	for i := range ticks {
		if ticks[i].Label != "" {
			ticks[i].Label = si(ticks[i].Value)
		}
	}
	return ticks
}

// si returns a number of three digits with a prefix, such as 4.7 M.
func si(v float64) string {
	if v == 0 {
		return "0"
	}
	prefix := ""
	for _, p := range []struct {
		unit float64
		name string
	}{{1e9, "G"}, {1e6, "M"}, {1e3, "k"}} {
		if math.Abs(v) >= p.unit*0.9995 {
			v, prefix = v/p.unit, " "+p.name
			break
		}
	}
	digits := max(0, 2-int(math.Floor(math.Log10(math.Abs(v)*1.00001))))
	text := fmt.Sprintf("%.*f", min(digits, 3), v)
	if strings.Contains(text, ".") {
		text = strings.TrimRight(strings.TrimRight(text, "0"), ".")
	}
	return text + prefix
}
