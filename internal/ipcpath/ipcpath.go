// Package ipcpath has the limits of the paths of Unix sockets.
package ipcpath

import "fmt"

// MaxServer is the maximum size in bytes of the path that names the three sockets of a
// map's server: PATH, PATH+1 and PATH+2.
const MaxServer = Max - len("+2")

// Check returns an error if a path has more than most bytes, which is Max or MaxServer.
// The text of the error follows the endpoint: "has a path of 200 bytes; at most 105 are
// allowed".
func Check(path string, most int) error {
	if len(path) > most {
		return fmt.Errorf("has a path of %d bytes; at most %d are allowed", len(path), most)
	}
	return nil
}
