package wire

import (
	"crypto/rand"
	"encoding/hex"
	"math"
	"strconv"

	"clustermap/sockets"
)

// Properties of the READY command with which servers and clients of this module announce
// their extensions of RFC 12. Other peers ignore them.
const (
	// propertyCHP marks a peer of this module.
	propertyCHP = "X-CHP"

	// propertyMaxValue is the largest value that a server takes: bytes, in decimal.
	propertyMaxValue = "X-CHP-Max-Value"

	// propertyRefusals announces that the server reports every update that it refuses, on
	// the client's snapshot connection (see AppendRefusal).
	propertyRefusals = "X-CHP-Refusals"

	// propertyHistory announces that the server answers HISTORY?: the number of versions of a
	// key that it keeps, in decimal.
	propertyHistory = "X-CHP-History"

	// propertyModel is the Clone model of a server, in decimal, if it is not 6. Such a
	// server announces only its instance besides.
	propertyModel = "X-CHP-Model"

	// propertyInstance identifies a server, from its start to its end, on all of its
	// ports: idSize hexadecimal digits. Behind one name there can be several servers, and
	// each connection of a client can reach another one; so a client compares what its
	// connections say. A client that connects to the collector when it follows a server
	// announces the instance of that one, and another server takes no updates from it.
	propertyInstance = "X-CHP-Instance"

	// propertyClient identifies a client on all of its connections: idSize hexadecimal
	// digits, the same for all servers, so that a server that takes over a map
	// recognizes the client. propertyGeneration is a decimal number that increases
	// with each session. Once a server has accepted an update of one session, it
	// refuses updates of earlier sessions, and of earlier connections of that session.
	propertyClient     = "X-CHP-Client"
	propertyGeneration = "X-CHP-Generation"

	// propertyOrder announces that the client numbers its updates from 1, in their
	// sequence field; 0 is no number. The value, in decimal, is the number of bytes of
	// updates after which the server reports the client's progress; with 0 it does so
	// only at the start of a session.
	propertyOrder = "X-CHP-Order"

	// propertyResume announces that the server answers SYNC? and SINCE?, and says the identity
	// of its map in KTHXBAI.
	propertyResume = "X-CHP-Resume"

	// propertyReplies announces that a reply acknowledges the client's updates: it is to
	// say where they are in the server's order. The client asks for those that it needs, if
	// the value is repliesAsked; one with another value expects a reply to each batch.
	propertyReplies = "X-CHP-Replies"
)

// product is our value of propertyCHP.
const product = "clustermap/1"

// propertyTransactions announces that the server judges requests: see package txn.
const propertyTransactions = "X-CHP-Transactions"

// repliesAsked is our value of propertyReplies.
const repliesAsked = "2"

// idSize is the number of digits of the identity of a client, and of a server.
const idSize = 32

// NewID returns a new identity of a client or a server.
func NewID() string {
	var id [idSize / 2]byte
	rand.Read(id[:]) // never fails
	return hex.EncodeToString(id[:])
}

// Properties returns what each connection of this module announces, and one that only asks
// a question nothing else.
func Properties() map[string]string { return map[string]string{propertyCHP: product} }

// Ours reports whether a peer is of this module.
func Ours(p *sockets.Peer) bool { return announces(p, propertyCHP) }

func announces(p *sockets.Peer, name string) bool {
	_, ok := p.Property(name)
	return ok
}

// Client is what a client announces.
type Client struct {
	ID         string // see NewID
	Generation uint64 // of the session

	// Progress is the number of bytes of updates after which it wants to hear of its
	// progress; with 0 only at the start of a session.
	Progress int
}

// Properties returns what a client announces on all of its connections.
func (c Client) Properties() map[string]string {
	m := Properties()
	m[propertyClient] = c.ID
	m[propertyGeneration] = strconv.FormatUint(c.Generation, 10)
	m[propertyOrder] = strconv.Itoa(c.Progress)
	m[propertyReplies] = repliesAsked
	return m
}

// Follow adds to the properties of a connection to a collector that the client follows the
// server with this instance, if it has one.
func Follow(properties map[string]string, instance string) {
	if instance != "" {
		properties[propertyInstance] = instance
	}
}

// IsClient reports whether a peer has announced the identity of a client, valid or not.
func IsClient(p *sockets.Peer) bool { return announces(p, propertyClient) }

// ClientOf returns the identity and the generation that a peer has announced. ok is false
// for a client of another implementation, and for an impossible announcement.
func ClientOf(p *sockets.Peer) (id string, generation uint64, ok bool) {
	if id, _ = p.Property(propertyClient); len(id) != idSize {
		return "", 0, false
	}
	text, _ := p.Property(propertyGeneration)
	generation, err := strconv.ParseUint(text, 10, 64)
	return id, generation, err == nil
}

// RepliesOf reports whether a client has announced that replies acknowledge its updates, and
// whether it asks for those that it needs.
func RepliesOf(p *sockets.Peer) (wanted, asked bool) {
	text, wanted := p.Property(propertyReplies)
	return wanted, text == repliesAsked
}

// NumberingOf returns the identity of a client that numbers its updates, and Client.Progress.
func NumberingOf(p *sockets.Peer) (id [idSize / 2]byte, progress int, ok bool) {
	text, _ := p.Property(propertyOrder)
	every, err := strconv.ParseUint(text, 10, 31)
	if err != nil {
		return id, 0, false
	}
	digits, _ := p.Property(propertyClient)
	if len(digits) != idSize {
		return id, 0, false
	}
	if _, err := hex.Decode(id[:], []byte(digits)); err != nil {
		return id, 0, false
	}
	return id, int(every), true
}

// Server is what a server announces.
type Server struct {
	Instance string // see NewID
	Model    Model
	MaxValue int // the largest value that it takes, in bytes; 0 if it does not say
	History  int // versions of a key that it keeps; below 2 it answers no questions about them
}

// Properties returns what a server announces on all of its ports.
func (s Server) Properties() map[string]string {
	m := map[string]string{propertyInstance: s.Instance}
	if !DialectOf(s.Model).Full {
		m[propertyModel] = strconv.Itoa(int(s.Model))
		return m
	}
	m[propertyCHP], m[propertyRefusals], m[propertyTransactions], m[propertyResume], m[propertyLeases] = product, "1", "1", "1", "1"
	m[propertyMaxValue] = strconv.Itoa(s.MaxValue)
	if s.History > 1 {
		m[propertyHistory] = strconv.Itoa(s.History)
	}
	return m
}

// InstanceOf returns the instance that a peer announced, or "" if it announced none: a
// server its own, and a client at the collector that of the server that it follows.
func InstanceOf(p *sockets.Peer) string {
	id, _ := p.Property(propertyInstance)
	return id
}

// ProductOf returns the product of a peer that announces the extensions, or "".
func ProductOf(p *sockets.Peer) string {
	text, _ := p.Property(propertyCHP)
	return text
}

// ReportsRefusals reports whether a server reports every update that it refuses.
func ReportsRefusals(server *sockets.Peer) bool { return announces(server, propertyRefusals) }

// JudgesTransactions reports whether a server judges requests.
func JudgesTransactions(server *sockets.Peer) bool { return announces(server, propertyTransactions) }

// Resumes reports whether a server answers SYNC? and SINCE?.
func Resumes(server *sockets.Peer) bool { return announces(server, propertyResume) }

// HasModel reports whether a server of this module has another Clone model than 6.
func HasModel(server *sockets.Peer) bool { return announces(server, propertyModel) }

// MaxValueOf returns the largest value that a server accepts, in bytes, or 0 if the server
// does not announce it.
func MaxValueOf(server *sockets.Peer) int {
	text, _ := server.Property(propertyMaxValue)
	n, err := strconv.ParseUint(text, 10, 31)
	if err != nil {
		return 0
	}
	return int(min(n, math.MaxInt32))
}
