package chp

import (
	"errors"
	"slices"

	"clustermap/internal/buf"
	"clustermap/internal/kvmsg"
)

// Batch is a list of updates for one call of [Client.Apply] or [Server.Apply]. Many
// updates in one call cost much less than a call for each. The zero Batch is empty and
// ready to use. After Reset its memory is used again, so a Batch that is reused does not
// allocate.
//
// With Apply a batch is not a transaction: its updates are applied in order, but updates of
// others may come in between, and a part can be refused. [Client.ApplyIf] makes all or none.
//
// Set and Delete do not return an error. Apply returns the first error that they had,
// and then applies nothing; see Err.
//
// A Batch is not safe for concurrent use, except that several goroutines may apply it
// while none changes it.
type Batch struct {
	wire    []byte          // records without sequences
	spans   []buf.Span      // of the records, with the tags of kvmsg.Inspect
	largest int             // bytes of the largest value
	err     error           // the first one
	leases  []kvmsg.LeaseID // to which updates attach their keys, each once
}

var errBatchSize = errors.New("chp: the batch has more than 1 GiB")

// Set adds an update of a key. The rules for key, value and options are those of
// [Client.Set]. Set does not retain key or value.
func (b *Batch) Set(key string, value []byte, opts ...SetOption) {
	if len(value) == 0 {
		b.fail(ErrEmptyValue)
		return
	}
	b.add(key, value, opts)
}

// Delete adds the deletion of a key.
func (b *Batch) Delete(key string) { b.add(key, nil, nil) }

func (b *Batch) add(key string, value []byte, opts []SetOption) {
	if err := kvmsg.ValidUpdate(bytesOf(key), value); err != nil {
		b.fail(err)
		return
	}
	b.append(key, value, opts)
}

// append is add for a key that was checked.
func (b *Batch) append(key string, value []byte, opts []SetOption) {
	var space [128]byte // on the stack
	props, err := appendOptions(space[:0], opts)
	if err != nil {
		b.fail(err)
		return
	}
	start := len(b.wire)
	if len(value) > maxBatch || start+kvmsg.RecordSize(len(key), 0, len(props), len(value)) > maxBatch {
		b.fail(errBatchSize)
		return
	}
	for _, o := range opts {
		if o.kind == optionLease && !slices.Contains(b.leases, o.lease) {
			b.leases = append(b.leases, o.lease)
		}
	}
	tag := kvmsg.HashKey(bytesOf(key))
	if len(props) > 0 {
		tag |= kvmsg.TagProperties
	}
	if len(value) == 0 {
		tag |= kvmsg.TagDelete
	}
	b.wire = kvmsg.AppendRecord(b.wire, bytesOf(key), 0, nil, props, value)
	b.spans = append(b.spans, buf.Span{Start: uint32(start), End: uint32(len(b.wire)), Tag: tag})
	b.largest = max(b.largest, len(value))
}

func (b *Batch) fail(err error) {
	if b.err == nil {
		b.err = err
	}
}

// Err returns the first error of Set or Delete since the last Reset: ErrEmptyValue, or a
// *MessageError for an update that servers refuse.
func (b *Batch) Err() error { return b.err }

// Len returns the number of updates.
func (b *Batch) Len() int { return len(b.spans) }

// Size returns the size of the updates in bytes, as they are sent.
func (b *Batch) Size() int { return len(b.wire) }

// Reset removes all updates and the error. It keeps the memory for new updates.
func (b *Batch) Reset() {
	b.wire, b.spans, b.largest, b.leases, b.err = b.wire[:0], b.spans[:0], 0, nil, nil
}

// record returns the update with index i, without UUID and sequence.
func (b *Batch) record(i int) kvmsg.Record {
	return kvmsg.Record(b.wire[b.spans[i].Start:b.spans[i].End])
}
