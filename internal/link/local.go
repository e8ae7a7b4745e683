package link

import "net"

// beneath returns the connection that a *tls.Conn or a similar type encrypts.
func beneath(nc net.Conn) net.Conn {
	for {
		outer, ok := nc.(interface{ NetConn() net.Conn })
		if !ok {
			return nc
		}
		nc = outer.NetConn()
	}
}

// Local reports whether the other end of an accepted connection is on this machine: over
// ipc, or over TCP from a loopback address or from the address that it has connected to.
// It never waits: of other types of connections, whose RemoteAddr may read, it reports
// false.
func Local(nc net.Conn) bool {
	switch nc := beneath(nc).(type) {
	case *net.UnixConn:
		return true
	case *net.TCPConn:
		return isLocal(nc.LocalAddr(), nc.RemoteAddr())
	}
	return false
}

// isLocal reports whether a connection uses TCP and its other end is on the
// same machine.
func isLocal(near, far net.Addr) bool {
	n, ok1 := near.(*net.TCPAddr)
	f, ok2 := far.(*net.TCPAddr)
	return ok1 && ok2 && (f.IP.IsLoopback() || f.IP.Equal(n.IP))
}
