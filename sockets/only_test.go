package sockets

import (
	"reflect"

	"clustermap/zmtp"
)

// only returns o without the options that sockets of the given type do not use, for
// tests whose sockets share options.
func only(kind zmtp.SocketType, o Options) Options {
	for field, v := range reflect.ValueOf(&o).Elem().Fields() {
		if !optionTypes[field.Name].has(kind) {
			v.SetZero()
		}
	}
	return o
}
