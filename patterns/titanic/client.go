package titanic

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"clustermap/internal/backoff"
	"clustermap/patterns/majordomo"
)

// A Client uses a Titanic server of any make, through a Majordomo broker. All methods
// are safe for concurrent use. Each waits for the broker and for the server until its
// context ends.
type Client struct {
	options ClientOptions
	client  *majordomo.Client
}

// NewClient makes a client. That there is no broker yet is no error.
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

// Submit has the server store a request for a service, and returns its UUID when
// it is on the disk. The service's name is printable, has 1 to 255 bytes and does not begin
// with "mmi.", as the broker's own services do; the body has at least one frame.
//
// After an error other than ErrInvalid the request may have been stored all the same, and is
// executed then. Who submits it again should have a service to which it is the same
// whether it gets a request once or twice.
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
// ErrUnknown if nothing is stored under the UUID, and a *RefusedError if the service
// refused the request. The server keeps the reply until Discard or until ReplyTTL is
// over.
func (c *Client) Fetch(ctx context.Context, id UUID) (reply [][]byte, err error) {
	return c.request(ctx, serviceReply, []byte(id.String()))
}

// Wait is Fetch that asks again while there is no reply, while the server cannot
// answer, and while neither it nor the broker is there, until the context ends.
func (c *Client) Wait(ctx context.Context, id UUID) (reply [][]byte, err error) {
	poll := backoff.Backoff{Min: c.options.PollMin, Max: c.options.PollMax}
	for {
		reply, err := c.Fetch(ctx, id)
		switch {
		case errors.Is(err, ErrPending), errors.Is(err, ErrServer), errors.Is(err, majordomo.ErrNoReply):
		case isBusy(err):
		default:
			return reply, err
		}
		timer := time.NewTimer(poll.Next())
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, errors.Join(ctx.Err(), err)
		}
	}
}

// isBusy tells whether a broker has said that it cannot do a request now.
func isBusy(err error) bool {
	for _, e := range []error{majordomo.ErrNoService, majordomo.ErrWorkerLost, majordomo.ErrQueueFull, majordomo.ErrExpired} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// Discard has the server delete a request and its reply. A request that was not
// executed is not executed any more, unless a worker has it already. To discard what
// is not there is no error.
func (c *Client) Discard(ctx context.Context, id UUID) error {
	_, err := c.request(ctx, serviceClose, []byte(id.String()))
	return err
}

// Close ends the client, and all calls with ErrClosed.
func (c *Client) Close() error { return c.client.Close() }

// request sends a request to one of the three services, and returns the content of
// an answer that is OK.
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
	// Text after the three digits means nothing (RFC 9).
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
