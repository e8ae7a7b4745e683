package binarystar_test

import (
	"context"
	"fmt"

	"clustermap/patterns/binarystar"
)

// await reads changes until a node is in a state.
func await(n *binarystar.Node, s binarystar.State) {
	changes, err := n.Subscribe()
	if err != nil {
		panic(err)
	}
	defer changes.Close()
	for c := range changes.C() {
		if c.State == s {
			return
		}
	}
}

// A pair in one program. Usually they are two programs on two machines, with
// endpoints such as tcp://*:5003 and tcp://backup.example:5004.
func Example() {
	ctx := context.Background()
	primary, err := binarystar.New(ctx, binarystar.Options{
		Role: binarystar.RolePrimary, Bind: "inproc://example-primary", Peer: "inproc://example-backup",
	})
	if err != nil {
		panic(err)
	}
	defer primary.Close()
	backup, err := binarystar.New(ctx, binarystar.Options{
		Role: binarystar.RoleBackup, Bind: "inproc://example-backup", Peer: "inproc://example-primary",
	})
	if err != nil {
		panic(err)
	}
	defer backup.Close()
	await(backup, binarystar.StatePassive)

	// A request has come: is it this node's to answer?
	accept, err := primary.Vote(ctx)
	fmt.Println("the primary accepts:", accept, err)
	accept, err = backup.Vote(ctx)
	fmt.Println("the backup accepts:", accept, err)
	// Output:
	// the primary accepts: true <nil>
	// the backup accepts: false <nil>
}

// A node that is to be stopped on purpose hands over before.
func ExampleNode_Handover() {
	ctx := context.Background()
	primary, err := binarystar.New(ctx, binarystar.Options{
		Role: binarystar.RolePrimary, Bind: "inproc://handover-primary", Peer: "inproc://handover-backup",
	})
	if err != nil {
		panic(err)
	}
	defer primary.Close()
	backup, err := binarystar.New(ctx, binarystar.Options{
		Role: binarystar.RoleBackup, Bind: "inproc://handover-backup", Peer: "inproc://handover-primary",
	})
	if err != nil {
		panic(err)
	}
	defer backup.Close()
	await(backup, binarystar.StatePassive)
	// The active can hand over once it has heard that the other one is passive.
	changes, err := primary.Subscribe()
	if err != nil {
		panic(err)
	}
	for c := range changes.C() {
		if c.Peer.State == binarystar.StatePassive {
			break
		}
	}

	err = primary.Handover(ctx)
	fmt.Println(err)
	fmt.Println("primary:", primary.State(), "- epoch", primary.Epoch())
	fmt.Println("backup:", backup.State(), "- epoch", backup.Epoch())
	// Output:
	// <nil>
	// primary: passive - epoch 2
	// backup: active - epoch 2
}
