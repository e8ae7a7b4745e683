package link

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strconv"
	"syscall"
	"time"
)

// Values of the SOCKS 5 protocol (RFC 1928) and of its authentication by user name
// and password (RFC 1929).
const (
	socksVersion     = 5
	socksNoAuth      = 0
	socksPassword    = 2
	socksConnect     = 1
	socksIPv4        = 1
	socksName        = 3
	socksIPv6        = 4
	socksRefused     = 5
	socksAuthVersion = 1
)

var socksReplies = [...]string{
	1: "general failure", 2: "connection not allowed", 3: "network unreachable", 4: "host unreachable",
	socksRefused: "connection refused", 6: "TTL expired", 7: "command not supported", 8: "address type not supported",
}

// ProxyError reports that a SOCKS 5 proxy could not be reached, did not behave as
// one, or refused to connect.
type ProxyError struct {
	Proxy  string // host:port, as in sockets.Options.SOCKSProxy
	Reason string
	Err    error // the network error, syscall.ECONNREFUSED if the proxy reports that its connection was refused, or nil
}

func (e *ProxyError) Error() string {
	if e.Reason == "" {
		return fmt.Sprintf("sockets: proxy %s: %v", e.Proxy, e.Err)
	}
	return fmt.Sprintf("sockets: proxy %s: %s", e.Proxy, e.Reason)
}

// Unwrap returns Err.
func (e *ProxyError) Unwrap() error { return e.Err }

// MarshalText returns the text of Error.
func (e *ProxyError) MarshalText() ([]byte, error) { return []byte(e.Error()), nil }

// dialProxy connects to an endpoint through the proxy.
func dialProxy(ctx context.Context, dial dialFunc, e Endpoint, o *Options) (net.Conn, error) {
	nc, err := dial(ctx, "tcp", o.Proxy)
	if err != nil {
		return nil, &ProxyError{Proxy: o.Proxy, Err: err}
	}
	if err := o.askProxy(ctx, nc, e); err != nil {
		nc.Close()
		return nil, err
	}
	return nc, nil
}

// askProxy asks the proxy at the other end of nc to connect to an endpoint, within
// ProxyTimeout. It reads nothing after the proxy's
// answers, because the next bytes are the peer's.
func (o *Options) askProxy(ctx context.Context, nc net.Conn, e Endpoint) error {
	limit := time.Now().Add(o.ProxyTimeout)
	if t, ok := ctx.Deadline(); ok && t.Before(limit) {
		limit = t
	}
	_ = nc.SetDeadline(limit) // fails only on a closed connection; then reading fails too
	proxied := duplex{Conn: nc}
	if err := proxied.Init(nc); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = nc.SetDeadline(time.Unix(1, 0)) })
	reason, err := o.socks(&proxied, e)
	if !stop() {
		// The deadline in the past may still be set, so nc cannot be used.
		return ctx.Err()
	}
	if err == nil && reason == "" {
		return nc.SetDeadline(time.Time{})
	}
	return &ProxyError{Proxy: o.Proxy, Reason: reason, Err: err}
}

// socks performs the exchange with the proxy. It returns a reason if the proxy
// refuses or violates the protocol.
func (o *Options) socks(nc io.ReadWriter, e Endpoint) (reason string, err error) {
	hello := []byte{socksVersion, 1, socksNoAuth}
	if o.ProxyUser != "" {
		hello = []byte{socksVersion, 2, socksNoAuth, socksPassword}
	}
	var in [4]byte
	if err := exchange(nc, hello, in[:2]); err != nil {
		return "", err
	}
	switch {
	case in[0] != socksVersion:
		return fmt.Sprintf("not a SOCKS 5 proxy: the first byte of its answer is %d", in[0]), nil
	case in[1] == socksNoAuth:
	case in[1] == socksPassword && o.ProxyUser != "":
		auth := appendField([]byte{socksAuthVersion}, o.ProxyUser)
		if err := exchange(nc, appendField(auth, o.ProxyPassword()), in[:2]); err != nil {
			return "", err
		}
		if in[1] != 0 {
			return "user name or password refused", nil
		}
	case in[1] == socksPassword:
		return "requires a user name and a password", nil
	default:
		return "no authentication method in common", nil
	}

	request := []byte{socksVersion, socksConnect, 0}
	if ip, err := netip.ParseAddr(e.host); err == nil {
		kind := byte(socksIPv6)
		if ip.Is4() {
			kind = socksIPv4
		}
		request = append(append(request, kind), ip.AsSlice()...)
	} else {
		if len(e.host) > MaxProxyField {
			return "host name is too long for SOCKS", nil
		}
		request = appendField(append(request, socksName), e.host)
	}
	request = binary.BigEndian.AppendUint16(request, uint16(e.port))
	if err := exchange(nc, request, in[:4]); err != nil {
		return "", err
	}
	switch code := int(in[1]); {
	case in[0] != socksVersion:
		return "answer with another version of SOCKS", nil
	case code == socksRefused:
		return socksReplies[code], syscall.ECONNREFUSED
	case code != 0 && code < len(socksReplies):
		return socksReplies[code], nil
	case code != 0:
		return fmt.Sprintf("unknown reply code %d", code), nil
	}
	// Skip the address that the proxy connects from.
	size := 0
	switch in[3] {
	case socksIPv4:
		size = 4
	case socksIPv6:
		size = 16
	case socksName:
		if _, err := io.ReadFull(nc, in[:1]); err != nil {
			return "", err
		}
		size = int(in[0])
	default:
		return fmt.Sprintf("answer with unknown address type %d", in[3]), nil
	}
	_, err = io.ReadFull(nc, make([]byte, size+2))
	return "", err
}

// appendField appends a text, preceded by its size in one byte.
func appendField(dst []byte, text string) []byte {
	return append(append(dst, byte(len(text))), text...)
}

// exchange writes out and fills in.
func exchange(nc io.ReadWriter, out, in []byte) error {
	if _, err := nc.Write(out); err != nil {
		return err
	}
	_, err := io.ReadFull(nc, in)
	return err
}

// CheckProxy returns an error if the address of a SOCKS proxy is invalid.
func CheckProxy(address string) error {
	if address == "" {
		return nil
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("%q is not host:port", address)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 || host == "" {
		return fmt.Errorf("%q needs a host and a port from 1 to 65535", address)
	}
	return nil
}
