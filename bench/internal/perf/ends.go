package perf

import (
	"context"
	"errors"

	"clustermap/sockets"
	"clustermap/zmtp"
)

// The keys that libzmq's tools use too: with others the two could not talk. They protect
// nothing.
var (
	serverSecret, _ = zmtp.ParseSecretKey("{X}#>t#jRGaQ}gMhv=30r(Mw+87YGs+5%kh=i@f8")
	clientSecret, _ = zmtp.ParseSecretKey("9R9bV}[6z6DC-%$!jTVTKvWc=LEL{4i4gzUe$@Zx")

	serverSecurity = sockets.Security{CurveServer: true, CurveSecretKey: serverSecret}
	clientSecurity = sockets.Security{CurveServerKey: serverSecret.Public(), CurveSecretKey: clientSecret}
)

// lingers are options of sockets that close when everything is sent, as libzmq's tools do.
var lingers = sockets.Options{Linger: sockets.LingerForever}

// open is the constructor of a socket.
type open[S any] func(sockets.Options) (S, error)

// socket is what the tools need of all sockets.
type socket interface {
	Bind(ctx context.Context, endpoint string) error
	Connect(endpoint string) error
	LastEndpoint() string
	Close() error
}

// bound calls work with a socket that is bound.
func bound[S socket](ctx context.Context, a arguments, o sockets.Options, open open[S], work func(S) error) error {
	if a.curve {
		o.Security = serverSecurity
	}
	return with(o, open, func(s S) error {
		if err := s.Bind(ctx, a.endpoint); err != nil {
			return err
		}
		tellBound(ctx, s.LastEndpoint())
		return work(s)
	})
}

// connected calls work with a socket that is connected.
func connected[S socket](a arguments, o sockets.Options, open open[S], work func(S) error) error {
	if a.curve {
		o.Security = clientSecurity
	}
	return with(o, open, func(s S) error {
		if err := s.Connect(a.endpoint); err != nil {
			return err
		}
		return work(s)
	})
}

// with calls work with a socket, which it closes.
func with[S socket](o sockets.Options, open open[S], work func(S) error) error {
	s, err := open(o)
	if err != nil {
		return err
	}
	return errors.Join(work(s), s.Close())
}
