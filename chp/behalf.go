package chp

import (
	"context"
	"log/slog"
	"net"

	"clustermap/chp/internal/order"
	"clustermap/internal/kvmsg"
	"clustermap/internal/wake"
)

// OnBehalf returns a context for conditional updates, transactions and leases that a [Server] makes for somebody else, as another
// door to the map does, such as one for HTTP: they have that one's name, as those of a client
// (ServerOptions.Stamp and Server.LeaseOwner), and its Limits hold: of keys and of the map, and of updates and bytes
// a second, for which it waits. What that one may do the door has to check: see Role.Allow.
func OnBehalf(ctx context.Context, role *Role) context.Context {
	return context.WithValue(ctx, behalf{}, role)
}

type behalf struct{}

// roleIn returns for whom updates are made with a context, or nil.
func roleIn(ctx context.Context) *Role {
	role, _ := ctx.Value(behalf{}).(*Role)
	return role
}

// paceFor waits until whoever updates are made for may send them (Limits.Updates and Limits.Bytes). The error is that of the context:
// nothing was made.
func (s *Server) paceFor(ctx context.Context, updates, bytes int) error {
	if wait := s.rights.Charge(roleIn(ctx), updates, bytes); wait > 0 && !wake.Pause(ctx, wait) {
		return ctx.Err()
	}
	return nil
}

// authorIn returns whose the updates are that are made with a context.
func (s *Server) authorIn(ctx context.Context) order.From {
	role := roleIn(ctx)
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
