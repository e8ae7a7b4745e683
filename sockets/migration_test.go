package sockets_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"clustermap/internal/testenv"
	"clustermap/sockets"
)

var (
	timeLimit = testenv.Context
	check     = testenv.Must
)

// open makes a socket that is closed when the test ends. Messages still queued
// then are dropped.
func open[S interface{ Close() error }](t *testing.T, create func(sockets.Options) (S, error), o sockets.Options) S {
	t.Helper()
	o.Linger = sockets.LingerNone
	s, err := create(o)
	check(t, err)
	t.Cleanup(func() { check(t, s.Close()) })
	return s
}

// TestMigrationCode: the code on docs/MIGRATION.md works. A test in internal/docs
// compares it with the page.
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
