package perf

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"clustermap/sockets"
)

// ProxyThr has two publishers send through a proxy to one subscriber, and prints
// the throughput until that has got as many messages as each of them sends.
var ProxyThr = Tool{"proxy_thr", "<message-size> <message-count>", 2, 2, proxyThr}

// proxyHWM is the bound of all queues.
const proxyHWM = 10000

// proxyRun holds the functions that close its parts at the end, in order, and the first
// error.
type proxyRun struct {
	closers []func() error
	errs    []error
}

func (r *proxyRun) failed(err error) bool {
	if err != nil {
		r.errs = append(r.errs, err)
	}
	return len(r.errs) > 0
}

func (r *proxyRun) close() error {
	for _, c := range r.closers {
		r.failed(c())
	}
	return errors.Join(r.errs...)
}

func proxyThr(ctx context.Context, a arguments, out io.Writer) error {
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
	var r proxyRun
	xsub, err := sockets.NewXSub(o)
	if r.failed(err) {
		return r.close()
	}
	r.closers = append(r.closers, xsub.Close)
	xpub, err := sockets.NewXPub(lossless)
	if r.failed(err) {
		return r.close()
	}
	r.closers = append(r.closers, xpub.Close)
	sub, err := sockets.NewSub(receiving)
	if r.failed(err) {
		return r.close()
	}
	r.closers = append(r.closers, sub.Close)
	for _, err := range []error{
		xsub.Bind(ctx, frontend1), xsub.Bind(ctx, frontend2), xpub.Bind(ctx, backend),
		sub.Subscribe(""), sub.Connect(backend),
	} {
		if r.failed(err) {
			return r.close()
		}
	}

	printCount(out, a, "message")
	proxy, err := sockets.NewSteerableProxy(xsub, xpub, sockets.ProxyOptions{})
	if r.failed(err) {
		return r.close()
	}
	proxied := make(chan error, 1)
	go func() { proxied <- proxy.Run(ctx) }()
	var publishers sync.WaitGroup
	sent := make(chan error, 2)
	start := time.Now()
	for _, endpoint := range []string{frontend1, frontend2} {
		publishers.Go(func() { sent <- publish(ctx, endpoint, lossless, a) })
	}
	_, err = receive(ctx, sub, a)
	elapsed := time.Since(start)
	if !r.failed(err) {
		printThroughput(out, a, elapsed)
	}
	// The publishers may still be sending, or waiting to send; nothing receives those
	// messages.
	cancel()
	publishers.Wait()
	if err := <-proxied; !errors.Is(err, context.Canceled) {
		r.failed(err)
	}
	for range 2 {
		if err := <-sent; err != nil && !errors.Is(err, context.Canceled) {
			r.failed(err)
		}
	}
	return r.close()
}

// publish sends count messages once there is a subscriber.
func publish(ctx context.Context, endpoint string, o sockets.Options, a arguments) (err error) {
	s, err := sockets.NewXPub(o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if err := s.Connect(endpoint); err != nil {
		return err
	}
	if err := s.WaitSubscribers(ctx, "", 1); err != nil {
		return err
	}
	return send(ctx, s, a)
}
