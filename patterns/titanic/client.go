package titanic

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"

	"clustermap/internal/backoff"
	"clustermap/internal/wake"
	"clustermap/patterns/majordomo"
)

// A Client uses any Titanic server through a Majordomo broker. All methods are safe for
// concurrent use. Each waits for the broker and the server until its context ends.
type Client struct {
	options ClientOptions
	client  *majordomo.Client
}

// Format implements [fmt.Formatter]. It writes the name of the type for every verb: its
// options may have a secret key, and other fields change while it is in use.
func (c *Client) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "titanic.Client") }

// NewClient returns a client that connects in the background; the broker may start later.
func NewClient(o ClientOptions) (*Client, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	client, err := majordomo.NewClient(majordomo.ClientOptions{Broker: o.Broker, Socket: o.Socket})
	if err != nil {
		return nil, err
	}
	return &Client{o, client}, nil
}

// Submit stores a request for a service on the server, and returns its UUID when it is on
// disk. The service's name must be printable, have 1 to 255 bytes and not begin with
// "mmi."; the body must have at least one frame.
//
// After an error other than ErrInvalid, the request may nevertheless have been stored,
// and will be executed. Submit it again only if it may be executed twice.
func (c *Client) Submit(ctx context.Context, service string, body ...[]byte) (UUID, error) {
	if len(body) == 0 || !isServiceName([]byte(service)) {
		return UUID{}, ErrInvalid
	}
	content, err := c.request(ctx, serviceRequest, append([][]byte{[]byte(service)}, body...)...)
	if errors.Is(err, ErrUnknown) {
		return UUID{}, ErrInvalid
	}
	if err != nil {
		return UUID{}, err
	}
	if len(content) > 0 {
		if id, err := parseUUID(content[0]); err == nil {
			return id, nil
		}
	}
	return UUID{}, fmt.Errorf("%w: no UUID in %q", ErrProtocol, content)
}

// Fetch returns the reply to a request. The error is ErrPending while there is no reply,
// ErrUnknown if nothing is stored under the UUID, and a *RefusedError if the worker
// replied with an error. The server keeps the reply until Discard or Options.ReplyTTL.
func (c *Client) Fetch(ctx context.Context, id UUID) (reply [][]byte, err error) {
	return c.request(ctx, serviceReply, []byte(id.String()))
}

// Wait calls Fetch until there is a reply or the context ends. It continues while the
// server or the broker is not available.
func (c *Client) Wait(ctx context.Context, id UUID) (reply [][]byte, err error) {
	poll := backoff.Backoff{Min: c.options.PollMin, Max: c.options.PollMax}
	for {
		reply, err := c.Fetch(ctx, id)
		switch {
		case errors.Is(err, ErrPending), errors.Is(err, ErrServer), errors.Is(err, majordomo.ErrNoReply), errors.Is(err, majordomo.ErrNoService),
			errors.Is(err, majordomo.ErrWorkerLost), errors.Is(err, majordomo.ErrQueueFull), errors.Is(err, majordomo.ErrExpired): // for now
		default:
			return reply, err
		}
		if !wake.Pause(ctx, poll.Next()) {
			return nil, errors.Join(ctx.Err(), err)
		}
	}
}

// Discard deletes a request and its reply. A request that was not executed will not be,
// unless a worker has it already. Discarding an unknown UUID is not an error.
func (c *Client) Discard(ctx context.Context, id UUID) error {
	_, err := c.request(ctx, serviceClose, []byte(id.String()))
	return err
}

// Close ends the client. Calls in progress return ErrClosed.
func (c *Client) Close() error { return c.client.Close() }

// request sends a request to one of the three services. It returns the frames after the
// status if that is OK.
func (c *Client) request(ctx context.Context, service string, body ...[]byte) ([][]byte, error) {
	answer, err := c.client.Request(ctx, service, body...)
	if errors.Is(err, net.ErrClosed) {
		return nil, ErrClosed
	}
	if err != nil {
		return nil, err
	}
	if len(answer) == 0 {
		return nil, fmt.Errorf("%w: no status", ErrProtocol)
	}
	status, content := answer[0], answer[1:]
	// Text after the three digits has no meaning (RFC 9).
	if len(status) < 3 || len(status) > 3 && status[3] != ' ' {
		return nil, fmt.Errorf("%w: status %q", ErrProtocol, status)
	}
	switch string(status[:3]) {
	case statusOK:
		return content, nil
	case statusPending:
		return nil, ErrPending
	case statusUnknown:
		return nil, ErrUnknown
	case statusError:
		if service == serviceReply && len(content) == 2 {
			if code, err := strconv.Atoi(string(content[0])); err == nil {
				return nil, &RefusedError{code, string(content[1])}
			}
		}
		return nil, ErrServer
	}
	return nil, fmt.Errorf("%w: status %q", ErrProtocol, status)
}
