// Package txn is what clients and servers of this module say of transactions: updates that
// are made together, or not at all, and only if conditions hold when the server orders them.
// An update of one key with conditions is a transaction too.
//
//	client                          server
//	Desk.Make -> request  --------> collector -> Check -> Sequencer.Transact
//	Desk.Answered  <-- answers ---- when all that it was judged against is committed
//
// A request goes the way of updates, behind those that the client has sent before. Its
// updates are records as in a KVSET, with a UUID that contains the request's number ([Mark]);
// so those that are in the map say which requests were made. They are published as they are.
// A transaction of several updates has consecutive sequences, and its records say how many
// follow (kvmsg.PropertyMore).
//
// # Exactly once
//
// A client numbers its requests and sends those again that were not answered when a session
// ended. A request that fails changes nothing, so it may be judged again as long as no answer
// was given; one that was made is known to every server that has its updates, which answers
// for it (ledger.Clients.Made). A server judges requests only of a connection that lasts, and
// that began in the present term; so none is judged that was answered elsewhere since.
//
// The package does no input or output.
package txn
