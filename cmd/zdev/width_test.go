package main

import "testing"

// Help texts fit into a terminal of 80 columns.
func TestHelpWidth(t *testing.T) {
	t.Parallel()
	zdev.HelpWidth(t, newRoot())
}
