// Package timer holds the deadlines of keys with a time to live: millions of them, on a
// timing wheel.
package timer
