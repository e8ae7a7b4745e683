package perf

import (
	"context"
	"errors"
	"io"
	"time"

	"clustermap/sockets"
)

// ProxyThr has two publishers send through a proxy to one subscriber, and prints
// the throughput until that has got as many messages as each of them sends.
var ProxyThr = Tool{"proxy_thr", "<message-size> <message-count>", 2, 2, proxyThr}

// proxyHWM is the bound of all queues.
const proxyHWM = 10000

func proxyThr(ctx context.Context, a arguments, out io.Writer) (err error) {
	const (
		frontend1 = "inproc://perf_pub1"
		frontend2 = "inproc://perf_pub2"
		backend   = "inproc://perf_backend"
	)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	o := sockets.Options{SendHWM: proxyHWM, RecvHWM: proxyHWM, Inproc: new(sockets.Inproc)}
	lossless := o
	lossless.FullPolicy = sockets.PolicyBlock
	receiving := o
	receiving.SendHWM = 0
	xsub, err := sockets.NewXSub(o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, xsub.Close()) }()
	xpub, err := sockets.NewXPub(lossless)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, xpub.Close()) }()
	sub, err := sockets.NewSub(receiving)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, sub.Close()) }()
	if err := errors.Join(xsub.Bind(ctx, frontend1), xsub.Bind(ctx, frontend2), xpub.Bind(ctx, backend), sub.Subscribe(""), sub.Connect(backend)); err != nil {
		return err
	}

	printCount(out, a, "message")
	proxy, err := sockets.NewSteerableProxy(xsub, xpub, sockets.ProxyOptions{})
	if err != nil {
		return err
	}
	ended := make(chan error, 3)
	go func() { ended <- proxy.Run(ctx) }()
	start := time.Now()
	for _, endpoint := range []string{frontend1, frontend2} {
		go func() { ended <- publish(ctx, endpoint, lossless, a) }()
	}
	_, err = receive(ctx, sub, a)
	if elapsed := time.Since(start); err == nil {
		printThroughput(out, a, elapsed)
	}
	// The publishers may still be sending, or waiting to send; nothing receives those
	// messages.
	cancel()
	for range cap(ended) {
		if e := <-ended; !errors.Is(e, context.Canceled) {
			err = errors.Join(err, e)
		}
	}
	return err
}

// publish sends count messages once there is a subscriber.
func publish(ctx context.Context, endpoint string, o sockets.Options, a arguments) error {
	s, err := sockets.NewXPub(o)
	if err != nil {
		return err
	}
	err = s.Connect(endpoint)
	if err == nil {
		err = s.WaitSubscribers(ctx, "", 1)
	}
	if err == nil {
		err = send(ctx, s, a)
	}
	return errors.Join(err, s.Close())
}
