//go:build !unix

package testenv

// Suspend skips the test.
func (c *Child) Suspend() (resume func()) {
	c.t.Helper()
	c.t.Skip("no SIGSTOP on this system")
	return nil
}
