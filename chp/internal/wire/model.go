package wire

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"

	"clustermap/sockets"
)

// Model is one of the six Clone models of the ZeroMQ Guide: see chp.Model.
type Model int

// modelSix is the full protocol.
const modelSix Model = 6

// ErrModel is chp.ErrModel.
var ErrModel = errors.New("chp: not possible in this Clone model")

// ModelError is chp.ModelError.
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

// Dialect describes how a model differs on the wire. Messages are converted to and from
// the form of the full protocol at the sockets; the rest of chp does not depend on the
// model. Dialects are made by DialectOf, and can be compared.
type Dialect struct {
	Full      bool // HUGZ, a SUB as collector, pairs of servers, and the extensions of this module
	Three     bool // messages have three frames
	Subtrees  bool // a request names a subtree
	Collector bool // the guide's server accepts updates
	Snapshots bool // there is a ROUTER on P; otherwise the publisher is on P
}

// DialectOf returns the dialect of a model; 0 means 6.
func DialectOf(m Model) Dialect {
	m = cmp.Or(m, modelSix)
	return Dialect{Full: m == 6, Three: m < 5, Subtrees: m > 3, Collector: m > 2, Snapshots: m > 1}
}

// CheckModel returns a *ModelError if a server of this module has a model with other sockets
// or frames than m, the client's. server is one of its connections. confirms reports
// whether the server is of this module and so confirms subscriptions.
func CheckModel(m Model, server *sockets.Peer) (confirms bool, err error) {
	model := modelSix
	if text, ok := server.Property(propertyModel); ok {
		n, err := strconv.ParseUint(text, 10, 8)
		if err != nil {
			return false, nil
		}
		model = Model(n)
	} else if !Ours(server) {
		return false, nil
	}
	mine, other := DialectOf(m), DialectOf(model)
	if other.Collector = mine.Collector; other != mine {
		return true, &ModelError{Server: model, Client: cmp.Or(m, modelSix)}
	}
	return true, nil
}

// Ports returns the offsets of snapshots, publisher and collector from P; -1 means that
// there is no such port.
func (d Dialect) Ports() (snapshot, publisher, collector int) {
	if d.Snapshots {
		return 0, 1, 2
	}
	return -1, 0, 2
}

// Carries returns an error if an update with this value and these properties cannot be
// sent.
func (d Dialect) Carries(value, props []byte) error {
	switch {
	case !d.Three:
		return nil
	case len(value) == 0:
		return errModelDeletes
	case len(props) > 0:
		return errModelProperties
	}
	return nil
}
