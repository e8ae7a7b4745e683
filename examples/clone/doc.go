// Package clone has only the tests of the Clone programs beside it: a server and a client
// for each of the guide's models 1 to 6. See docs/CLONE.md.
package clone
