package command

import "io"

// output is standard output. It keeps the first error, because cobra ignores errors
// when it prints help texts.
type output struct {
	w   io.Writer
	err error
}

// Write writes to standard output.
func (o *output) Write(b []byte) (int, error) {
	n, err := o.w.Write(b)
	if err != nil && o.err == nil {
		o.err = err
	}
	return n, err
}
