// Package timer implements a timing wheel for millions of deadlines.
package timer
