package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"clustermap/chp"
	"clustermap/internal/command"
	"clustermap/internal/visible"

	tea "github.com/charmbracelet/bubbletea"
	"github.com/spf13/cobra"
)

func newTop() *cobra.Command {
	var n connection
	var interval time.Duration
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Show rates, clients and hot keys on a terminal",
		Long: `Shows what the active server of --server does, anew at each --interval: its state and
rates, the keys that are updated most (see chp hot), and the clients (see chp clients),
the one with the longest queue first.

  s  sort the clients by another column
  p  pause, and go on
  q  quit

If the server does not answer, the last numbers stay, with the reason above them.

Only an administrator may ask: see chp failover. Without a terminal use chp status, chp
clients and chp hot, which have --json.`,
		Example: `  chp top --server tcp://127.0.0.1:5556`,
	}
	cmd.Flags().DurationVar(&interval, "interval", time.Second, "time between two looks, 10s at most")
	n.register(cmd, 5*time.Second)
	cmd.RunE = command.Runs(func(ctx context.Context, cmd *cobra.Command, _ []string) error {
		servers, err := n.servers()
		terminal := command.Terminal(cmd.OutOrStdout())
		in, _ := cmd.InOrStdin().(*os.File)
		switch {
		case err != nil:
			return err
		case interval <= 0 || interval > 10*time.Second:
			return fail(exitUsage, "--interval %v: must be above 0 and at most 10s", interval)
		case terminal == nil || in == nil:
			return fail(exitUsage, "chp top needs a terminal; chp status, chp clients and chp hot print the same")
		}
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		m := &topModel{look: func(before *topLook) topMessage {
			look, err := n.lookAll(ctx, servers, before)
			return topMessage{look, err}
		}, interval: interval}
		first := m.look(nil)
		if first.err != nil {
			return first.err
		}
		m.now = first.look
		program := tea.NewProgram(m, tea.WithContext(ctx), tea.WithInput(in), tea.WithOutput(terminal), tea.WithAltScreen(), tea.WithoutSignalHandler())
		if _, err := program.Run(); err != nil && !errors.Is(err, tea.ErrProgramKilled) {
			return fail(exitRefused, "cannot use the terminal: %v", err)
		}
		return nil
	})
	return cmd
}

// topLook is what chp top knows of a server at one time.
type topLook struct {
	at      time.Time
	server  string
	status  chp.Status
	clients clientsLook
	counted chp.HotKeys // in the whole window

	passed float64 // seconds since the look before; 0 if there was none
	rate   float64 // updates a second
	hot    []hotLine
}

// lookAll asks the active server for everything.
func (n *connection) lookAll(ctx context.Context, servers []string, before *topLook) (look *topLook, err error) {
	all := n.ask(ctx, servers)
	r := all.serving()
	if r == nil {
		r = all.successor()
	}
	if r == nil {
		return nil, cmp.Or(ctx.Err(), all.outcome())
	}
	look = &topLook{at: time.Now(), server: r.server, status: r.status}
	if look.clients, err = n.lookAtClients(ctx, []string{r.server}); err != nil {
		return nil, err
	}
	if look.counted, err = n.lookAtHot(ctx, r.server); err != nil {
		return nil, err
	}
	if before == nil || before.server != look.server {
		return look, nil
	}
	look.passed = look.at.Sub(before.at).Seconds()
	if rate := rateOf(float64(look.status.Sequence-before.status.Sequence), look.passed); rate != nil {
		look.rate = *rate
	}
	look.clients.rate(before.clients)
	look.hot = hottest(look.counted.Since(before.counted), hotAsked)
	return look, nil
}

// topMessage is the outcome of a look.
type topMessage struct {
	look *topLook
	err  error
}

// topAgain says that it is time for the next look.
type topAgain struct{}

// topModel is the state of the view.
type topModel struct {
	look     func(before *topLook) topMessage
	interval time.Duration

	now           *topLook
	err           error // of the last look
	width, height int
	order         int // in topOrders
	paused        bool
}

// topOrders are the columns by which clients are sorted, most first.
var topOrders = []struct {
	name string
	of   func(*listedClient) float64
}{
	{"queue", func(c *listedClient) float64 { return float64(c.QueueBytes) }},
	{"in", func(c *listedClient) float64 { return orZero(c.ReceivedRate) }},
	{"out", func(c *listedClient) float64 { return orZero(c.SentRate) }},
	{"lag", func(c *listedClient) float64 { return float64(c.Lag) }},
}

func orZero(rate *float64) float64 {
	if rate == nil {
		return 0
	}
	return *rate
}

// Init implements tea.Model.
func (m *topModel) Init() tea.Cmd { return m.later() }

func (m *topModel) later() tea.Cmd {
	return tea.Tick(m.interval, func(time.Time) tea.Msg { return topAgain{} })
}

// Update implements tea.Model. Each look is made by a goroutine of the program, one at a time.
func (m *topModel) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
	case tea.KeyMsg:
		switch msg.String() {
		case "q", "esc", "ctrl+c":
			return m, tea.Quit
		case "s":
			m.order = (m.order + 1) % len(topOrders)
		case "p":
			m.paused = !m.paused
		}
	case topAgain:
		if m.paused {
			return m, m.later()
		}
		before := m.now
		return m, func() tea.Msg { return m.look(before) }
	case topMessage:
		if m.err = msg.err; msg.err == nil {
			m.now = msg.look
		}
		return m, m.later()
	}
	return m, nil
}

// The view of a terminal that does not tell its size.
const (
	topWidth  = 80
	topHeight = 24
)

// View implements tea.Model.
func (m *topModel) View() string {
	width, height := m.width, m.height
	if width <= 0 || height <= 0 {
		width, height = topWidth, topHeight
	}
	lines := m.lines(height)
	for i, line := range lines {
		lines[i] = clip(line, width)
	}
	return strings.Join(lines, "\n")
}

// lines returns the lines of the view, at most height of them.
func (m *topModel) lines(height int) []string {
	t := m.now
	state := stateText(&t.status)
	paused := ""
	if m.paused {
		paused = "   paused"
	}
	lines := []string{
		fmt.Sprintf("%s   %s   up %v   %s%s", t.server, state, time.Duration(t.status.UptimeSeconds)*time.Second, t.at.Format(time.TimeOnly), paused),
		fmt.Sprintf("%.0f updates/s   %d keys   map %s   memory %s   %d clients   sequence %d",
			t.rate, t.status.Keys, memory(t.status.MapBytes), memory(t.status.MemoryBytes), t.status.Clients, t.status.Sequence),
		"",
	}
	if m.err != nil {
		lines[2] = strings.ReplaceAll(command.ErrorText(m.err, "; "), "\n", " ")
	}
	const help = "q quit   s sort clients by: %s   p pause"
	room := height - len(lines) - 1
	hot := append([]string{fmt.Sprintf("%12s %6s %10s  %s", "UPDATES/S", "SHARE", "BYTES/S", "HOT KEY")}, hotLines(t.hot)...)
	hot = append(hot[:min(len(hot), max(room/2, 1))], "")
	clients := append([]string{fmt.Sprintf("%10s %8s %9s %9s  %s", "QUEUE", "LAG", "IN/S", "OUT/S", "CLIENT")}, m.clientLines()...)
	lines = append(lines, hot...)
	lines = append(lines, clients[:min(len(clients), max(height-len(lines)-1, 0))]...)
	lines = append(lines, fmt.Sprintf(help, topOrders[m.order].name))
	for i, line := range lines {
		lines[i] = visible.String(line)
	}
	return lines[:min(len(lines), height)]
}

func hotLines(all []hotLine) (lines []string) {
	for _, h := range all {
		lines = append(lines, fmt.Sprintf("%12.1f %5.1f%% %10s  %s", h.updates, 100*h.share, memory(int64(h.bytes)), h.key))
	}
	return lines
}

func (m *topModel) clientLines() (lines []string) {
	by := topOrders[m.order].of
	all := slices.Clone(m.now.clients.all)
	slices.SortStableFunc(all, func(a, b listedClient) int { return cmp.Compare(by(&b), by(&a)) })
	for i := range all {
		c := &all[i]
		lines = append(lines, fmt.Sprintf("%10s %8s %9s %9s  %s",
			memory(int64(c.QueueBytes)), strconv.Itoa(c.Lag), rateText(c.ReceivedRate), rateText(c.SentRate),
			strings.TrimSpace(c.Name+" "+c.Remote)+"  "+subtreesText(c.Subtrees, c.MoreSubtrees)))
	}
	return lines
}

// clip shortens a line to a number of characters.
func clip(line string, width int) string {
	if utf8.RuneCountInString(line) <= width {
		return line
	}
	return string([]rune(line)[:width])
}
