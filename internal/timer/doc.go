// Package timer keeps deadlines, millions of them, and tells which have come.
package timer
