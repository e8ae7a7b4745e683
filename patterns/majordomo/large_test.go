package majordomo

import (
	"errors"
	"testing"

	"clustermap/sockets"
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

// TestManyPartsOfNothing: MaxReply bounds the memory of the parts of a reply, which have
// some although they are empty.
func TestManyPartsOfNothing(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	broker, err := sockets.NewRouter(sockets.Options{SendHWM: sockets.Unlimited})
	must(t, err)
	t.Cleanup(func() { must(t, broker.Close()) })
	must(t, broker.Bind(ctx, "tcp://127.0.0.1:*"))
	const most = 1 << 20
	c := startClient(t, broker.LastEndpoint(), ClientOptions{Version: Version02, Timeout: -1, MaxReply: most})
	result := make(chan error, 1)
	go func() {
		_, err := c.Request(ctx, "service", nil)
		result <- err
	}()
	request, err := broker.Recv(ctx)
	must(t, err)
	for range most / 64 {
		must(t, broker.Send(ctx, request[0], []byte(client02), []byte{codePartial02}, []byte("service"), nil))
	}
	must(t, broker.Send(ctx, request[0], []byte(client02), []byte{codeFinal02}, []byte("service"), nil))
	if err := <-result; !errors.Is(err, ErrTooLarge) {
		t.Errorf("%d empty parts with a limit of %d bytes: %v", most/64, most, err)
	}
}
