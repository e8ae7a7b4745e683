package sockets

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"clustermap/internal/queue"
)

// sleeping waits until the writer to a socket's only peer sleeps.
func sleeping(t *testing.T, s *socket) *queue.Outbox {
	t.Helper()
	o := &s.core.Pipes()[0].Out
	eventually(t, "the writer sleeps", func() bool { return o.Status().Idle })
	return o
}

// TestWriterRetires: a writer that sleeps from one look to the next ends, and
// the next message has another one.
func TestWriterRetires(t *testing.T) {
	t.Parallel()
	pull := bind(t, NewPull, Options{})
	push := dialled(t, NewPush, Options{}, pull.LastEndpoint())
	for i := range 10 {
		must(t, push.Send(testContext(t), []byte(fmt.Sprint(i))))
		m, err := pull.Recv(testContext(t))
		must(t, err)
		if string(m[0]) != fmt.Sprint(i) {
			t.Fatalf("message %d is %q", i, m[0])
		}
		o := sleeping(t, &push.socket)
		if !o.Retire() {
			t.Fatal("the first look ends the writer")
		}
		if i%2 == 0 {
			eventually(t, "the second look ends it", func() bool { return !o.Retire() })
			continue
		}
		// It was at work in between.
		must(t, push.Send(testContext(t), []byte("more")))
		_, err = pull.Recv(testContext(t))
		must(t, err)
		if o = sleeping(t, &push.socket); !o.Retire() {
			t.Fatal("it ends though it has just worked")
		}
	}
}

// TestWriterRetiresBusily: nothing is lost or out of order where writers end and
// start all the time.
func TestWriterRetiresBusily(t *testing.T) {
	t.Parallel()
	pull := bind(t, NewPull, Options{})
	push := dialled(t, NewPush, Options{}, pull.LastEndpoint())
	const messages = 3000
	var wg sync.WaitGroup
	defer wg.Wait()
	done := make(chan struct{})
	defer close(done)
	wg.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
				push.core.Retire()
				time.Sleep(10 * time.Microsecond)
			}
		}
	})
	wg.Go(func() {
		for i := range messages {
			if err := push.Send(context.Background(), []byte(fmt.Sprint(i))); err != nil {
				t.Error(err)
				return
			}
			if i%10 == 0 {
				time.Sleep(50 * time.Microsecond)
			}
		}
	})
	for i := range messages {
		m, err := pull.Recv(testContext(t))
		must(t, err)
		if string(m[0]) != fmt.Sprint(i) {
			t.Fatalf("message %d is %q", i, m[0])
		}
	}
}

// TestWriterStays: one that sends heartbeats does not end.
func TestWriterStays(t *testing.T) {
	t.Parallel()
	pull := bind(t, NewPull, Options{})
	push := dialled(t, NewPush, Options{HeartbeatInterval: time.Hour}, pull.LastEndpoint())
	must(t, push.Send(testContext(t), []byte("message")))
	_, err := pull.Recv(testContext(t))
	must(t, err)
	sleeping(t, &push.socket)
	if push.core.Status().Writers {
		t.Error("the timer that ends writers runs")
	}
}
