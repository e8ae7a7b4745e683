// Package wake tells a goroutine that waits that there is something to do.
package wake

// Signal leaves a token in a channel of capacity one, unless there is one: the goroutine
// that takes it looks for everything that there is to do.
func Signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
