package freelance

import "strconv"

// property identifies clients and servers of this package to each other: both
// announce it in their handshake.
const property = "X-FLP"

// propertyVersion is its value.
const propertyVersion = "1"

// The commands of RFC 10, and an extension for refusals: REFUSED is followed by the
// control frame of the request, a reason, and a text for people. Clients choose their
// control frames, and those of Client are numbers, so no reply to it begins with REFUSED.
var (
	ping    = []byte("PING")
	pong    = []byte("PONG")
	refused = []byte("REFUSED")
)

// The reasons of a refusal.
var (
	reasonBusy  = []byte("busy")  // it was not executed; another server may have room
	reasonError = []byte("error") // the handler returned an error
)

// control is the control frame of a request: its number in decimal digits.
type control struct {
	digits [20]byte
	size   int
}

func (c *control) set(number uint64) { c.size = len(strconv.AppendUint(c.digits[:0], number, 10)) }

func (c *control) frame() []byte { return c.digits[:c.size] }

// parseControl returns the number of a control frame, or 0 if a Client did not write it.
// Numbers begin at 1 and have no leading zeros.
func parseControl(frame []byte) (number uint64) {
	if len(frame) == 0 || len(frame) > 20 || frame[0] == '0' {
		return 0
	}
	number, err := strconv.ParseUint(string(frame), 10, 64)
	if err != nil {
		return 0
	}
	return number
}
