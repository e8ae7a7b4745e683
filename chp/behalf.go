package chp

import (
	"context"
	"log/slog"
	"net"

	"clustermap/chp/internal/order"
	"clustermap/internal/kvmsg"
)

// OnBehalf returns a context for conditional updates, transactions and leases that a [Server] makes for somebody else, as another
// door to the map does, such as one for HTTP: they have that one's name, as those of a client
// (ServerOptions.Stamp and Server.LeaseOwner), and its Limits of keys and bytes hold. What that one may do the door has to check: see Role.Allow.
func OnBehalf(ctx context.Context, role *Role) context.Context {
	return context.WithValue(ctx, behalf{}, role)
}

type behalf struct{}

// authorIn returns whose the updates are that are made with a context.
func (s *Server) authorIn(ctx context.Context) order.From {
	role, _ := ctx.Value(behalf{}).(*Role)
	if role == nil {
		return order.From{}
	}
	return order.From{By: role.Name(), Share: s.share(role)}
}

// LeaseOwner returns the name of whoever was granted a lease, "" if nobody knows, and false if there is no such lease. Without
// ServerOptions.Access and Stamp nobody knows.
func (s *Server) LeaseOwner(id string) (name string, ok bool) {
	lease, ok := kvmsg.ParseLeaseID([]byte(id))
	if !ok {
		return "", false
	}
	return s.leaseOwner(lease)
}

// Denied counts and logs that another door to the map has refused a request of somebody at a network address.
func (s *Server) Denied(remote string, err *AccessError) {
	s.counts.refused.add(err)
	host, _, _ := net.SplitHostPort(remote)
	s.peerLog.Log(slog.LevelWarn, "request refused", host+" "+err.Name, slog.String("remote", remote), slog.Any("error", err), slog.String("user", err.Name))
}
