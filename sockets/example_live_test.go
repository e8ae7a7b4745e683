package sockets_test

import (
	"fmt"

	"clustermap/sockets"
)

// Options of a socket can change while it is in use. This program gives a slow
// consumer more room, and looks up the options in effect.
func Example_setOptions() {
	push, err := sockets.NewPush(sockets.Options{SendHWM: 2})
	if err != nil {
		panic(err)
	}
	defer push.Close()
	err = push.SetOptions(func(o *sockets.Options) {
		o.SendHWM *= 100
	})
	if err != nil {
		panic(err)
	}
	fmt.Println(push.Options().SendHWM)
	fmt.Println(push.SetOptions(func(o *sockets.Options) { o.Conflate = true }))
	// Output:
	// 200
	// sockets: option Conflate: cannot change: it decides how queues store their messages
}
