// Package access reads from a file who the clients of a server are, and what each may do:
//
//	[users.sensors]
//	curve = ["rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7"]
//
//	[users.anna]
//	plain = "$2a$10$..."            # chp access hash
//	token = ["sha256:..."]          # chp access token
//	certificate = ["anna.example"]
//	groups = ["operators"]
//
//	[[rules]]
//	who = ["sensors"]
//	write = ["/sensor/"]
//
//	[[rules]]
//	who = ["@operators"]
//	read = [""]                     # the whole map
//	admin = true
//
//	[[limits]]
//	who = ["*"]
//	updates = 10000                 # a second
//	bytes = 10485760
//
//	[[limits]]
//	who = ["sensors"]
//	keys = 100000                   # of those that it may write
//	map = 67108864                  # bytes of these
//
// Rules add up, and what no rule allows is denied. Who is the name of a user, @ and a group, anonymous for those who
// come by NULL and prove nothing, or * for everybody. A limit is the largest of those that apply.
//
// A [Policy] is such a file; a [File] follows one, and is a chp.Access. It is read again by [File.Reload]; one with
// an error changes nothing.
//
// Whoever opens another door to the map, such as one for HTTP, asks [Policy.Token] or [Policy.Certificate] who
// somebody is, and [Policy.Allow] what that one may do.
package access
