package majordomo

import (
	"errors"
	"testing"
)

// TestLargeRequest: a request that is larger than MaxWaitingBytes is executed if a worker
// is free, and refused if it would have to wait.
func TestLargeRequest(t *testing.T) {
	t.Parallel()
	b, endpoint := startBroker(t, BrokerOptions{MaxWaitingBytes: 1000})
	c := startClient(t, endpoint, ClientOptions{})
	body := make([]byte, 100_000)
	if _, err := c.Request(testContext(t), "echo", body); !errors.Is(err, ErrQueueFull) {
		t.Errorf("without a worker: %v", err)
	}
	w := startWorker(t, "echo", endpoint, echo, WorkerOptions{})
	must(t, w.WaitRegistered(testContext(t)))
	eventually(t, "the broker knows the worker", func() bool { return b.Stats().Workers == 1 })
	reply, err := c.Request(testContext(t), "echo", body)
	if err != nil || len(reply) != 1 || len(reply[0]) != len(body) {
		t.Errorf("with a worker: %d frames, %v", len(reply), err)
	}
}
