package chp

import (
	"clustermap/chp/internal/wire"
	"clustermap/internal/option"
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
//	   A snapshot of this package's server has keys and values, but no properties, as
//	   in RFC 12 (State Synchronization); that of the guide's has them.
//
// In all models an update without a value deletes its key on both sides. The guide's
// programs of models 1 to 4 keep such a key with an empty value, but never send one.
type Model = wire.Model

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
var ErrModel = wire.ErrModel

// ModelError reports that a server has another Clone model than the client. Set
// ClientOptions.Model to the server's. Its fields Server and Client are models, 1 to 6.
type ModelError = wire.ModelError

func checkModel(m Model) error {
	if m < 0 || m > ModelSix {
		return option.New("chp", "Model", "is %d; Clone has models 1 to 6", int(m))
	}
	return nil
}
