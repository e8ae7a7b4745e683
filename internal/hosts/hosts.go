// Package hosts says by which names a server over HTTP may be asked.
package hosts

import (
	"net"
	"slices"
	"strings"
)

// Named reports whether the Host of a request is a name of this server: an IP address, localhost or
// one of names, of which "*" allows all. A browser that is on the same network as the server can
// be led to it by a page of somebody else, whose name its owner lets point to the server (DNS
// rebinding).
func Named(host string, names []string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.ToLower(host), ".")
	if host == "localhost" || net.ParseIP(strings.Trim(host, "[]")) != nil {
		return true
	}
	return slices.ContainsFunc(names, func(name string) bool { return name == "*" || strings.EqualFold(name, host) })
}
