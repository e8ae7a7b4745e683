package sockets

import (
	"context"
	"encoding/binary"

	"clustermap/zmtp"
)

// serveControl carries out the commands from the control socket.
func (p *SteerableProxy) serveControl(ctx context.Context) error {
	var news Poller
	defer news.Close()
	if err := news.Add(p.control, PollIn); err != nil {
		return err
	}
	var ready []Ready
	for {
		var err error
		if ready, err = news.WaitInto(ctx, ready); err != nil {
			return err
		}
		m, err := p.control.(Receiver).Recv(ctx)
		if again(err) {
			continue
		}
		if err != nil {
			return err
		}
		if err := p.command(ctx, m); err != nil {
			return err
		}
	}
}

func (p *SteerableProxy) command(ctx context.Context, m Message) error {
	last := len(m) - 1
	answer := m[:last:last]
	terminate := false
	switch string(m[last]) {
	case "PAUSE":
		if err := p.Pause(ctx); err != nil {
			return err
		}
	case "RESUME":
		p.Resume()
	case "TERMINATE":
		terminate = true
	case "STATISTICS":
		answer = append(answer, p.Statistics().frames()...)
	}
	if len(answer) == last && p.control.engine().Kind() == zmtp.TypeRep {
		answer = append(answer, []byte{})
	}
	if to, ok := p.control.(Sender); ok && len(answer) > last {
		if err := to.Send(ctx, answer...); err != nil && !again(err) {
			return err
		}
	}
	if terminate {
		p.Terminate()
	}
	return nil
}

// frames returns the answer to STATISTICS.
func (s ProxyStats) frames() [][]byte {
	var frames [][]byte
	for _, t := range []Traffic{s.FrontendIn, s.FrontendOut, s.BackendIn, s.BackendOut} {
		frames = append(frames, binary.NativeEndian.AppendUint64(nil, t.Frames), binary.NativeEndian.AppendUint64(nil, t.Bytes))
	}
	return frames
}
