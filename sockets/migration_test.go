package sockets_test

import (
	"context"
	"errors"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"clustermap/sockets"
)

// TestMigrationPage: the code on docs/MIGRATION.md is code that compiles.
func TestMigrationPage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/MIGRATION.md")
	check(t, err)
	source, err := os.ReadFile("example_migration_test.go")
	check(t, err)
	snippets := regexp.MustCompile(`(?s)\t// begin (\w+)\n(.*?)\t// end `).FindAllSubmatch(source, -1)
	if len(snippets) != 7 {
		t.Fatalf("%d snippets", len(snippets))
	}
	for _, s := range snippets {
		var b strings.Builder
		for line := range strings.Lines(string(s[2])) {
			b.WriteString(strings.TrimPrefix(line, "\t"))
		}
		if !strings.Contains(string(page), "```go\n"+b.String()+"```\n") {
			t.Errorf("%s is not on the page as it is in the source", s[1])
		}
	}
}

// TestMigrationCode: and that does what it says.
func TestMigrationCode(t *testing.T) {
	t.Parallel()
	check(t, migrateCurve())
	check(t, migrateMonitor())
	pull := open(t, sockets.NewPull, sockets.Options{})
	check(t, pull.Bind(timeLimit(t), "tcp://127.0.0.1:*"))
	check(t, migrateClose(timeLimit(t), pull.LastEndpoint()))
	if m, err := pull.Recv(timeLimit(t)); err != nil || string(m[0]) != "job" {
		t.Errorf("%q, %v", m, err)
	}
	ctx, cancel := context.WithCancel(timeLimit(t))
	ended := make(chan error, 4)
	frontend := open(t, sockets.NewRouter, sockets.Options{})
	backend := open(t, sockets.NewDealer, sockets.Options{})
	other := open(t, sockets.NewRouter, sockets.Options{})
	go func() { ended <- migrateServer(ctx) }()
	go func() { ended <- migrateSub(ctx) }()
	go func() { ended <- migratePoll(ctx, other, other) }()
	go func() { ended <- migrateProxy(ctx, frontend, backend) }()
	time.AfterFunc(time.Millisecond, cancel)
	for range 4 {
		if err := <-ended; !errors.Is(err, context.Canceled) && !errors.Is(err, sockets.ErrTimeout) {
			t.Error(err)
		}
	}
}
