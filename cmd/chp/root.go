package main

import (
	"clustermap/internal/command"

	"github.com/spf13/cobra"
)

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "chp",
		Short: "A hashmap shared by a cluster (Clustered Hashmap Protocol, RFC 12)",
		Long: `chp runs and uses a map that many programs share: one server numbers every update
and publishes it; every client holds a replica.

  chp serve                 runs a server on ports 5556, 5557 and 5558
  chp set /lamp/1 on        sets a key
  chp get /lamp/1           prints its value
  chp ls -l /lamp/          lists keys
  chp watch /lamp/          prints the keys, then every change

In JSON, sequence numbers are strings: they exceed 2^53, and jq before 1.7 and
JavaScript would round such numbers.

Exit codes: 0 success, 1 not found, refused or interrupted, 2 usage error, 3 no server in
time.`,
	}
	root.AddCommand(
		newServe(),
		newSet(),
		newGet(),
		newDel(),
		newTxn(),
		newEdit(),
		newAdd(),
		newLs(),
		newWatch(),
		newHistory(),
		newRevert(),
		newLock(),
		newElect(),
		newLease(),
		newDump(),
		newLoad(),
		newSync(),
		newBackup(),
		newRestore(),
		newFsck(),
		newBench(),
		newStatus(),
		newWait(),
		newClients(),
		newKick(),
		newHot(),
		newTop(),
		newFailover(),
		newPromote(),
		newCluster(),
		newWhoami(),
		newReload(),
		newAccess(),
		newContext(),
		command.NewKeygen("chp", "  chp serve --curve-key server.key --curve-allow client.key\n"+
			"  chp get /lamp/1 --curve-key client.key --curve-server-key server.key"),
		command.NewVersion("chp"),
	)
	return root
}
