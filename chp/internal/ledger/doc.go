// Package ledger keeps account of the updates of each client, so that each is applied
// once, however often it is sent.
//
// A client numbers its updates, and sends those again that a connection may have lost. A
// server accepts each number once ([Clients]), and tells the client how far it has come
// ([Reply]). The package does no input or output.
package ledger
