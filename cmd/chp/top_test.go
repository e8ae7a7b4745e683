package main

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"clustermap/chp"
	"clustermap/internal/commandtest"

	tea "github.com/charmbracelet/bubbletea"
)

// The view fits into a terminal of any size, whatever a server says, and nothing of that acts on the
// terminal.
func TestTopFits(t *testing.T) {
	t.Parallel()
	look := &topLook{server: "tcp://127.0.0.1:5556", status: chp.Status{State: chp.ServerState(commandtest.HostileText), TakesOver: true}}
	for i := range 100 {
		look.hot = append(look.hot, hotLine{key: fmt.Appendf(nil, "%d%s", i, commandtest.Hostile)})
		look.clients.all = append(look.clients.all, listedClient{ClientInfo: chp.ClientInfo{Name: commandtest.HostileText, Remote: fmt.Sprint(i), QueueBytes: i, Subtrees: []string{commandtest.Hostile}}})
	}
	m := &topModel{now: look, err: errors.New(commandtest.Hostile)}
	for _, size := range [][2]int{{0, 0}, {80, 24}, {200, 300}, {20, 10}, {1, 1}, {5, 2}, {80, 6}} {
		m.Update(tea.WindowSizeMsg{Width: size[0], Height: size[1]})
		width, height := size[0], size[1]
		if width == 0 {
			width, height = topWidth, topHeight
		}
		view := m.View()
		commandtest.Harmless(t, "view", view)
		lines := strings.Split(view, "\n")
		if len(lines) > height {
			t.Errorf("%v: %d lines", size, len(lines))
		}
		for _, line := range lines {
			if utf8.RuneCountInString(line) > width {
				t.Errorf("%v: %q", size, line)
			}
		}
	}
	m.Update(tea.WindowSizeMsg{Width: 200, Height: 60})
	if view := m.View(); !strings.Contains(view, "HOT KEY") || strings.Index(view, " 99  ") > strings.Index(view, " 98  ") || !strings.HasSuffix(view, "p pause") {
		t.Error(view)
	}
}

// A look that fails leaves the last numbers, with the reason, and the next one is made all the same;
// while it pauses, none is.
func TestTopGoesOnAfterAFailure(t *testing.T) {
	t.Parallel()
	looks := 0
	m := &topModel{interval: time.Nanosecond, now: &topLook{status: chp.Status{Keys: 17}}}
	m.look = func(before *topLook) topMessage {
		if looks++; before.status.Keys != 17 {
			t.Errorf("before: %+v", before)
		}
		return topMessage{nil, fail(exitNoServer, "no answer")}
	}
	_, next := m.Update(topAgain{})
	_, next = m.Update(next())
	if view := m.View(); !strings.Contains(view, "no answer") || !strings.Contains(view, "17 keys") {
		t.Error(view)
	}
	if _, again := next().(topAgain); !again || looks != 1 {
		t.Errorf("%d looks", looks)
	}
	m.Update(tea.KeyMsg{Type: tea.KeyRunes, Runes: []rune("p")})
	if _, next = m.Update(topAgain{}); next == nil || looks != 1 {
		t.Errorf("%d looks while it pauses", looks)
	}
	if _, again := next().(topAgain); !again {
		t.Error("does not go on")
	}
	if _, quit := m.Update(tea.KeyMsg{Type: tea.KeyCtrlC}); quit == nil {
		t.Error("does not end")
	}
}
