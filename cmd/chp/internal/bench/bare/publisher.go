package bare

import (
	"io"

	"clustermap/cmd/chp/internal/bench/link"
	"clustermap/cmd/chp/internal/bench/workload"
)

// Publisher is the role that sends the updates.
func Publisher(p *link.Peer) error {
	c, err := dial(p.Context(), p.Servers[0])
	if err != nil {
		return err
	}
	source := workload.NewSource(p.Spec, p.Publisher)
	p.Send(link.Event{Kind: link.Ready})

	buf := newBuffer(p.Spec)
	if err := p.Await(link.Warm); err != nil {
		return err
	}
	if err := send(c, source, p.Spec.Warmed(p.Publisher), buf); err != nil {
		return err
	}
	p.Send(link.Event{Kind: link.Warmed})

	if err := p.Await(link.Go); err != nil {
		return err
	}
	first := workload.Now()
	if err := send(c, source, p.Spec.Measured(p.Publisher), buf); err != nil {
		return err
	}
	p.Send(link.Event{Kind: link.Sent, First: first})
	<-p.Context().Done()
	return nil
}

// send sends n updates, and writes when buf holds a write's worth.
func send(w io.Writer, source *workload.Source, n int, buf []byte) error {
	buf = buf[:0]
	largest := 0
	for range n {
		key, value := source.Next()
		start := len(buf)
		buf = appendMessage(buf, key, value)
		largest = max(largest, len(buf)-start)
		if len(buf)+largest <= bufferSize {
			continue
		}
		if _, err := w.Write(buf); err != nil {
			return err
		}
		buf = buf[:0]
	}
	_, err := w.Write(buf)
	return err
}
