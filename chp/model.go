package chp

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"

	"clustermap/sockets"
)

// Model is one of the six Clone models of the ZeroMQ Guide, chapter 5. The zero value
// means 6, the full protocol (RFC 12). The others are for interoperation with programs
// of these models; each lacks the additions of the later ones:
//
//	1  No snapshots: a client has the updates published while it was connected. It
//	   does not look for gaps, which it could not fill. The publisher is on port P.
//	2  As 3. The guide's servers of models 1 and 2 make all updates themselves and
//	   have no collector; those of this package accept updates on P+2, as in model 3.
//	   An update to a server without a collector fails with a *CollectorError, and
//	   the client reconnects.
//	3  No subtrees: every snapshot is of the whole map, of which a client keeps its
//	   part.
//	4  Three frames, as in models 1 to 3: key, sequence, value. So there are no
//	   deletions, properties, times to live or UUIDs. A client recognizes its own
//	   updates by key and value: if another client sends an equal update at the same
//	   time, SetSync can return the sequence of that one, and report ErrUncertain for
//	   earlier updates. It also reports ErrUncertain for the oldest updates when more
//	   than 262,144 have not come back.
//	5  No HUGZ, as in models 1 to 4: a client detects a broken connection and PINGs
//	   that are not answered, but not a server that hangs behind working connections.
//	   Updates go from PUSH to PULL, to one server only, and the server does not
//	   report refused updates.
//
// In all models an update without a value deletes its key on both sides. The guide's
// programs of models 1 to 4 keep such a key with an empty value, but never send one.
type Model int

// The models of the guide. ModelSix is the full protocol.
const (
	ModelOne Model = iota + 1
	ModelTwo
	ModelThree
	ModelFour
	ModelFive
	ModelSix
)

// ErrModel is returned if the Clone model does not support an operation, or, as a
// [*ModelError], if a server has another model than the client.
var ErrModel = errors.New("chp: not possible in this Clone model")

// ModelError reports that a server has another Clone model than the client. Set
// ClientOptions.Model to the server's.
type ModelError struct {
	Server Model // 1 to 6
	Client Model // 1 to 6
}

func (e *ModelError) Error() string {
	return fmt.Sprintf("chp: the server is of Clone model %d, the client of model %d", e.Server, e.Client)
}

// Unwrap returns ErrModel.
func (e *ModelError) Unwrap() error { return ErrModel }

var (
	errModelDeletes    = fmt.Errorf("%w: models 1 to 4 have no deletions", ErrModel)
	errModelProperties = fmt.Errorf("%w: models 1 to 4 have no properties and no times to live", ErrModel)
)

// dialect describes how a model differs on the wire. Messages are converted to and from
// the form of the full protocol at the sockets; the rest of the package does not depend
// on the model.
type dialect struct {
	full      bool // HUGZ, a SUB as collector, pairs of servers, and the extensions of this package
	three     bool // messages have three frames
	subtrees  bool // a request names a subtree
	collector bool // the guide's server accepts updates
	snapshots bool // there is a ROUTER on P; otherwise the publisher is on P
}

func (m Model) dialect() dialect {
	m = cmp.Or(m, ModelSix)
	return dialect{full: m == 6, three: m < 5, subtrees: m > 3, collector: m > 2, snapshots: m > 1}
}

func (m Model) check() error {
	if m < 0 || m > ModelSix {
		return &OptionError{"Model", fmt.Sprintf("is %d; Clone has models 1 to 6", int(m))}
	}
	return nil
}

// meets returns a *ModelError if a server of this package has a model with other sockets
// or frames than m, the client's. server is one of its connections. confirms reports
// whether the server is of this package and so confirms subscriptions.
func (m Model) meets(server *sockets.Peer) (confirms bool, err error) {
	model := ModelSix
	if text, ok := server.Property(propertyModel); ok {
		n, err := strconv.ParseUint(text, 10, 8)
		if err != nil {
			return false, nil
		}
		model = Model(n)
	} else if !announces(server, propertyCHP) {
		return false, nil
	}
	mine, other := m.dialect(), model.dialect()
	if other.collector = mine.collector; other != mine {
		return true, &ModelError{Server: model, Client: cmp.Or(m, ModelSix)}
	}
	return true, nil
}

// ports returns the offsets of snapshots, publisher and collector from P; -1 means that
// there is no such port.
func (d dialect) ports() (snapshot, publisher, collector int) {
	if d.snapshots {
		return 0, 1, 2
	}
	return -1, 0, 2
}

// carries returns an error if an update with this value and these properties cannot be
// sent.
func (d dialect) carries(value, props []byte) error {
	switch {
	case !d.three:
		return nil
	case len(value) == 0:
		return errModelDeletes
	case len(props) > 0:
		return errModelProperties
	}
	return nil
}
