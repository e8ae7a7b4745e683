package engine

import "clustermap/zmtp"

// Differences with peers of ZMTP 2.0 and 1.0, in addition to the framing, which a
// codec handles: they do not understand commands, so they are sent no PING and
// confirm no subscriptions by a PONG; and the oldest do not send subscriptions.

// subscriptionMessage replaces a SUBSCRIBE or CANCEL command, in place, by the
// equivalent message, which is shorter. It returns the offset in frame at which
// the message begins. For anything else it returns 0 and changes nothing.
func subscriptionMessage(frame []byte) int {
	c, err := zmtp.ParseCommand(zmtp.CommandBody(frame))
	if err != nil {
		return 0
	}
	var first byte
	switch string(c.Name) {
	case zmtp.CommandSubscribe:
		first = 1
	case zmtp.CommandCancel:
	default:
		return 0
	}
	body := 1 + len(c.Data)
	frame[len(frame)-body] = first
	at := len(frame) - zmtp.FrameSize(body)
	zmtp.AppendHeader(frame[:at], 0, body)
	return at
}
