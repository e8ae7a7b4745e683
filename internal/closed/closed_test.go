package closed_test

import (
	"errors"
	"net"
	"testing"

	"clustermap/patterns/binarystar"
	"clustermap/patterns/freelance"
	"clustermap/patterns/majordomo"
	"clustermap/patterns/titanic"
	"clustermap/sockets"
)

// TestErrors: the errors of closed objects match net.ErrClosed and have texts of their
// own.
func TestErrors(t *testing.T) {
	t.Parallel()
	for text, err := range map[string]error{
		"binarystar: node is closed": binarystar.ErrClosed,
		"sockets: socket is closed":  sockets.ErrClosed,
		"freelance: closed":          freelance.ErrClosed,
		"majordomo: closed":          majordomo.ErrClosed,
		"titanic: closed":            titanic.ErrClosed,
	} {
		if err.Error() != text || !errors.Is(err, net.ErrClosed) {
			t.Errorf("%q, is net.ErrClosed: %v; want %q", err, errors.Is(err, net.ErrClosed), text)
		}
	}
}
