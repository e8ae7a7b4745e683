// Package route decides to which peer a message goes that is for one of them: to the next in
// turn (Balancer), or to the one with an identity (Table). Package fanout is for those that
// go to several.
package route
