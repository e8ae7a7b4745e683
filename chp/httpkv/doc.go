// Package httpkv is a door to a map for programs in any language: HTTP/1.1, with values as they are,
// conditions by entity tags, and watches as server-sent events. "chp serve --http" has it beside the
// pages of package admin; a program that embeds a server mounts a [Handler] for all paths that begin
// with /v1/, not with an http.ServeMux, which changes paths: a key may have "//" and "..".
//
//	GET, HEAD    /v1/kv{KEY}         the value; ETag is its sequence in quotes
//	PUT, DELETE  /v1/kv{KEY}         set and delete, with If-Match and If-None-Match, ?ttl= and ?lease=
//	GET          /v1/kv{PREFIX}?prefix  JSON lines, of one moment
//	GET          /v1/watch{PREFIX}   server-sent events: the state, and then each change
//	POST         /v1/txn             several updates at once, or none
//	POST         /v1/lease           grant a lease; GET lists them
//	GET, PUT, DELETE /v1/lease/{ID}  what it has left; renew; revoke
//	GET          /v1/openapi.yaml    all of this as OpenAPI 3.1
//
// A KEY begins with a slash and is percent-encoded; its bytes are the key. What a request may do
// says [Options]: without Write nothing can be changed, and with an Access each request must prove
// who makes it. An error is a problem in JSON (RFC 9457), of which the type says what kind it is.
//
// What a page of somebody else, which a browser on the same network shows, can do is nothing: a request
// must name the server (Options.Hosts), and one that says that it comes from another origin is refused
// unless that is in Options.Origins.
//
// Only an active server answers; another one of a pair names that in a problem with status 503.
//
// The package depends on nothing but package chp and the standard library; package chp does not
// depend on it.
package httpkv
