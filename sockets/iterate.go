package sockets

import (
	"context"
	"iter"
)

// Messages returns an iterator over the messages that the socket receives:
//
//	for m, err := range pull.Messages(ctx) {
//		if err != nil {
//			return err
//		}
//		fmt.Printf("%s\n", m[0])
//	}
//
// The messages are those that Recv would return, but each is valid only until
// the body of the loop ends: it refers to the bytes that were read from the
// network. So a message costs no allocation and no copy. Use Recv for messages
// that are kept, or copy their frames.
//
// The last pair has a nil message and the error that ends the loop: the
// context's error, ErrTimeout after Options.RecvTimeout, ErrClosed, or for a REQ
// or REP ErrState. The context is checked before each message.
//
// The iterator takes many messages from the queue at a time. While the loop
// runs, other receive calls do not get the ones that it has taken. If the body
// ends the loop, with break or return, those that it has not seen return to
// the front of their queue, and the next receive call gets them: nothing is
// lost. Several loops may run at the same time, one after another or in several
// goroutines; each message goes to one of them. To return many messages costs
// time, so use Recv, not a loop that ends at once, to receive one.
func (r *receiving) Messages(ctx context.Context) iter.Seq2[Message, error] {
	return func(yield func(Message, error) bool) {
		var b Batch
		var m Message
		next := 0 // the first message of b that was not yielded
		defer func() { r.core.PutBack(b.engine(), next) }()
		for {
			err := ctx.Err()
			if err == nil && next == b.Len() {
				next = 0
				err = r.RecvBatch(ctx, &b)
			}
			if err != nil {
				r.core.PutBack(b.engine(), next)
				next = 0
				yield(nil, err)
				return
			}
			m = m[:0]
			if r.core.Addressed() {
				m = append(m, b.Peer().Identity())
			}
			m = b.Message(next).AppendFrames(m)
			next++
			if r.taken != nil {
				r.taken(b.engine().Peer())
			}
			if !yield(m, nil) {
				return
			}
		}
	}
}

// Batches returns an iterator over the batches that the socket receives, as
// RecvBatch fills them:
//
//	for b, err := range pull.Batches(ctx) {
//		if err != nil {
//			return err
//		}
//		for i := range b.Len() {
//			body, _ := b.Message(i).Next()
//			fmt.Printf("%s\n", body)
//		}
//	}
//
// It is the same Batch each time, and is valid until the body of the loop ends.
// All messages of the batch are the body's, also if it ends the loop. The last
// pair has a nil batch and the error that ends the loop, as with Messages. The
// context is checked before each batch.
func (r *receiving) Batches(ctx context.Context) iter.Seq2[*Batch, error] {
	return func(yield func(*Batch, error) bool) {
		var b Batch
		defer b.Release()
		for {
			err := ctx.Err()
			if err == nil {
				err = r.RecvBatch(ctx, &b)
			}
			if err != nil {
				yield(nil, err)
				return
			}
			if !yield(&b, nil) {
				return
			}
		}
	}
}
