package main

import (
	"clustermap/internal/command"

	"github.com/spf13/cobra"
)

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "zdev",
		Short: "ZeroMQ devices: proxies, brokers, caches and taps",
		Long: `zdev runs the devices of the ZeroMQ Guide, and the commands that use them.

A device runs until SIGINT or SIGTERM. When it works it prints one line that
contains "ready" and its endpoints on standard error.

Exit codes: 0 done, 1 not found or refused, 2 usage, 3 no answer in time,
4 fallen behind (lag).`,
	}
	root.AddCommand(
		newProxy(),
		newTap(),
		newReplay(),
		newCache(),
		newLag(),
		newBroker(),
		newWorker(),
		newRequest(),
		newServices(),
		newFreelanceServe(),
		newFreelanceCall(),
		newTitanic(),
		newSubmit(),
		newFetch(),
		newDiscard(),
		command.NewKeygen("zdev", "  zdev proxy --kind reqrep --frontend tcp://*:5559 --backend tcp://*:5560 --curve-key server.key --curve-allow client.key"),
	)
	return root
}
