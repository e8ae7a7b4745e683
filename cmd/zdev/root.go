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

A device runs until SIGINT, SIGTERM or SIGHUP; but if --curve-allow names a file, SIGHUP
makes it read the keys there again, unless its terminal was closed. When it is ready it prints a line with "ready"
and its endpoints on standard error.

Exit codes: 0 success, 1 not found or refused, 2 usage error, 3 no answer in time,
4 too far behind (lag).`,
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
		command.NewVersion("zdev"),
		command.NewKeygen("zdev", "  zdev proxy --kind reqrep --frontend tcp://*:5559 --backend tcp://*:5560 \\\n    --curve-key server.key --curve-allow client.key"),
	)
	return root
}
