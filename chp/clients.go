package chp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"strconv"
	"time"

	"clustermap/chp/internal/collect"
	"clustermap/chp/internal/follow"
	"clustermap/chp/internal/wire"
	"clustermap/internal/hooks"
	"clustermap/internal/kvmsg"
	"clustermap/internal/visible"
	"clustermap/sockets"
)

// ClientInfo describes a client that is connected to a server. "chp clients --json" prints its
// JSON form. Later versions may add fields.
type ClientInfo struct {
	// Name is the user ID that the client was authenticated with, or with CURVE its public
	// key. It is "" if the client was not authenticated.
	Name string `json:"name"`

	// ID tells the client from others, on all of its connections, until its program ends. It is not what the
	// client says who it is, which nobody else may know. It is "" for a client of another implementation.
	ID string `json:"id"`

	Remote   string `json:"remote"`   // network address of its connection to the publisher
	Endpoint string `json:"endpoint"` // of the server, to which that was made

	// Subtrees are the keys of which it gets updates, as prefixes; "" are all. There are at most
	// eight; MoreSubtrees is the number of the others.
	Subtrees     []string `json:"subtrees"`
	MoreSubtrees int      `json:"more_subtrees"`

	// Lag is the number of updates, and of heartbeats, that wait for the client in the server,
	// and QueueBytes their size.
	Lag        int `json:"lag"`
	QueueBytes int `json:"queue_bytes"`

	// Sent is the number of updates, and of heartbeats, that the server has sent to it since
	// Since. Received is the number of updates that came on the connection on which it sends
	// them now, or -1 if that is not known: it has sent none, or is of another implementation.
	Sent     uint64 `json:"sent"`
	Received int64  `json:"received"`

	Since time.Time `json:"since"` // when it connected
}

// AdminError reports that a server did not do what only an administrator may ask, because the
// one who asked is not one: see ServerOptions.Admins.
type AdminError struct {
	Server string // as passed to ServerClients or Kick
	Reason string // the server's answer
}

func (e *AdminError) Error() string {
	return fmt.Sprintf("chp: %s refuses: %s", e.Server, visible.String(e.Reason))
}

// errKicked is the reason with which a client is disconnected.
var errKicked = errors.New("chp: disconnected by an administrator")

// Clients returns the clients that are connected, in the order in which they came. It looks at
// some at a time, so that thousands do not hold up the server: one that comes or goes meanwhile
// may be there or not.
func (s *Server) Clients() iter.Seq[ClientInfo] {
	return func(yield func(ClientInfo) bool) {
		for number := uint64(0); ; {
			page := s.members.After(number, clientsAtATime)
			if len(page) == 0 {
				return
			}
			for i := range page {
				number = page[i].Number
				if !yield(s.describe(&page[i])) {
					return
				}
			}
		}
	}
}

// describe returns what the server knows of a client.
func (s *Server) describe(c *collect.Connected) ClientInfo {
	st := c.Publisher.Stats()
	topics, all := hooks.Topics(s.publisher, c.Publisher, kvmsg.KeyHUGZ, mostSubtrees)
	info := ClientInfo{
		Name: c.Name, ID: c.ID, Remote: st.Remote, Endpoint: st.Endpoint, Subtrees: topics, MoreSubtrees: all - len(topics),
		Lag: st.QueuedMessages, QueueBytes: st.QueuedBytes, Sent: st.MessagesOut, Received: -1, Since: c.Since.Round(0),
	}
	if c.Collector != nil {
		info.Received = int64(c.Collector.Stats().MessagesIn)
	}
	return info
}

// Kick disconnects clients: who is the name or the ID of a ClientInfo, or its Remote. It returns
// how many clients that were. They come back unless they are refused then: see
// ServerOptions.Security.
func (s *Server) Kick(who string) int { return s.members.Disconnect(who, errKicked) }

// clientsAnswer is an answer to AskClients: a portion of the clients.
type clientsAnswer struct {
	Refused string            `json:"refused,omitempty"`
	Clients []json.RawMessage `json:"clients"`
	Last    string            `json:"last"` // the number of the last one; "" if there are no more
}

// answerClients answers with a portion of the clients after a number. It does not block.
func (s *Server) answerClients(peer *sockets.Peer, after string) {
	number, err := strconv.ParseUint(after, 10, 64)
	if err == nil {
		err = s.admins.check(peer)
	}
	answer := clientsAnswer{Clients: []json.RawMessage{}}
	if err != nil {
		answer.Refused = err.Error()
		s.peerLog.Refused("does not list the clients", peer, err)
		s.replyJSON(peer, wire.AnswerClients, answer)
		return
	}
	size := 0
	page := s.members.After(number, clientsAtATime)
	for i := range page {
		text, err := json.Marshal(s.describe(&page[i]))
		if err != nil {
			panic(err) // it has numbers and strings only
		}
		if size += len(text); size > clientsAnswerBytes && i > 0 {
			break
		}
		answer.Clients = append(answer.Clients, text)
		answer.Last = strconv.FormatUint(page[i].Number, 10)
	}
	s.replyJSON(peer, wire.AnswerClients, answer)
}

// kickAnswer is an answer to AskKick.
type kickAnswer struct {
	Refused string `json:"refused,omitempty"`
	Clients int    `json:"clients"`
}

// answerKick disconnects clients at the request of a peer.
func (s *Server) answerKick(peer *sockets.Peer, client string) {
	var answer kickAnswer
	if err := s.admins.check(peer); err != nil {
		answer.Refused = err.Error()
		s.peerLog.Refused("disconnects no client", peer, err)
	} else if answer.Clients = s.Kick(client); answer.Clients > 0 {
		s.log.Warn("clients disconnected at the request of an administrator", who(peer), slog.String("client", client), slog.Int("clients", answer.Clients))
	}
	s.replyJSON(peer, wire.AnswerKick, answer)
}

// ServerClients asks the server at tcp://host:P for its clients, as [Server.Clients] has them.
// security is the same as [ClientOptions.Security]. If the server refuses, the error is an
// [*AdminError]. A server of an earlier version does not answer.
func ServerClients(ctx context.Context, server string, security sockets.Security) (all []ClientInfo, err error) {
	err = converse(ctx, server, security, func(q *questions) error {
		all = nil
		for after := "0"; after != ""; {
			var page struct {
				clientsAnswer
				Clients []ClientInfo `json:"clients"`
			}
			if err := q.json(server, &page, &page.Refused, wire.AnswerClients, wire.AskClients, after); err != nil {
				return err
			}
			if len(all)+len(page.Clients) > mostListed || page.Last != "" && len(page.Clients) == 0 {
				return follow.ErrNotCHP
			}
			all, after = append(all, page.Clients...), page.Last
		}
		return nil
	})
	return all, err
}

// json asks a question about something, and decodes the answer. refused points to what is in it
// if the server refuses.
func (q *questions) json(server string, into any, refused *string, answer, question, about string) error {
	text, err := q.ask(answer, []byte(question), []byte(about))
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("%w: %w", follow.ErrNotCHP, err)
	}
	if *refused != "" {
		return &AdminError{server, *refused}
	}
	return nil
}

// Kick has the server at tcp://host:P disconnect clients, as [Server.Kick] does, and returns how
// many. security is the same as [ClientOptions.Security]. If the server refuses, the error is an
// [*AdminError]. A server of an earlier version does not answer.
func Kick(ctx context.Context, server, client string, security sockets.Security) (clients int, err error) {
	err = converse(ctx, server, security, func(q *questions) error {
		var a kickAnswer
		err := q.json(server, &a, &a.Refused, wire.AnswerKick, wire.AskKick, client)
		clients = a.Clients
		return err
	})
	return clients, err
}
