package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"text/tabwriter"
	"time"

	"clustermap/chp"
	"clustermap/internal/clusternode"
	"clustermap/internal/command"
	"clustermap/internal/visible"
	"clustermap/internal/wake"

	"github.com/spf13/cobra"
)

func newCluster() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "cluster",
		Short: "Run three nodes here; show and change those of a cluster",
		Long: `A cluster is three or more servers with the same map, which survives the loss of any
minority of them: see chp serve --cluster.

The commands that change it need an administrator, as chp failover does. They find the
leader by any node of --server. They exit with 1 if it refuses, and with 3 if no
server answers.`,
		Example: `  chp cluster dev
  chp cluster status
  chp cluster add 4 tcp://10.0.0.4:5556
  chp cluster promote 4
  chp cluster transfer 2
  chp cluster remove 1`,
		Args: cobra.ArbitraryArgs,
	}
	const names = "add, dev, promote, remove, status, transfer"
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		if len(args) == 0 {
			return fail(exitUsage, "name a command: %s", names)
		}
		return fail(exitUsage, "there is no command %q; name one of %s", args[0], names)
	}
	cmd.AddCommand(newClusterDev(), newClusterStatus(), newClusterAdd(), newClusterPromote(), newClusterRemove(), newClusterTransfer())
	return cmd
}

func newClusterStatus() *cobra.Command {
	var n connection
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Print the nodes of a cluster",
		Long: `Prints a line for each node of the cluster of --server: its number, its endpoint, its
state (leader, follower, candidate, or learner, which has no vote; - if it does not
answer), the term, the sequence of its last update, and its lag, the number of batches
of updates that the leader does not know to be on its disk.

chp status --json with all nodes as --server has the same, for programs.`,
		Args: cobra.NoArgs,
	}
	n.register(cmd, 5*time.Second)
	cmd.RunE = command.Runs(func(ctx context.Context, cmd *cobra.Command, _ []string) error {
		members, err := n.clusterOf(ctx)
		if err != nil {
			return err
		}
		var endpoints []string
		for _, m := range members {
			endpoints = append(endpoints, m.Endpoint)
		}
		all := n.soon().ask(ctx, endpoints)
		lag := map[uint64]int64{}
		for _, r := range all {
			if c := r.status.Cluster; r.why == "" && c != nil && c.Leader == c.Node {
				for _, m := range c.Members {
					lag[m.Node] = m.Lag
				}
			}
		}
		w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
		fmt.Fprintln(w, "NODE\tENDPOINT\tSTATE\tTERM\tSEQUENCE\tLAG")
		for i, m := range members {
			state, term, sequence, behind := "-", "-", "-", "-"
			if c := all[i].status.Cluster; all[i].why == "" && c != nil {
				state, term, sequence = c.State, strconv.FormatUint(c.Term, 10), strconv.FormatInt(all[i].status.Sequence, 10)
			}
			if l, ok := lag[m.Node]; ok {
				behind = strconv.FormatInt(l, 10)
			}
			fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\t%s\n", m.Node, visible.String(m.Endpoint), visible.String(state), term, sequence, behind)
		}
		return w.Flush()
	})
	return cmd
}

// clusterOf returns the members of the cluster of --server, as the first node that answers knows them.
func (n *connection) clusterOf(ctx context.Context) ([]chp.NodeMember, error) {
	servers, err := n.servers()
	if err != nil {
		return nil, err
	}
	all := n.soon().ask(ctx, servers)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	var best *chp.NodeStatus
	answered := false
	for i := range all {
		answered = answered || all[i].why == ""
		if c := all[i].status.Cluster; all[i].why == "" && c != nil && (best == nil || c.Term > best.Term) {
			best = c
		}
	}
	switch {
	case best != nil:
		return best.Members, nil
	case answered:
		return nil, fail(exitRefused, "%s is not a node of a cluster", servers[0])
	}
	return nil, all.outcome()
}

// change makes a change at the leader of the cluster, which may become another one meanwhile: then it is made there, unless it was made
// already. A leader that removes itself does not know that.
func (n *connection) change(ctx context.Context, c chp.ClusterChange) error {
	ctx, cancel := context.WithTimeout(ctx, n.timeout)
	defer cancel()
	var refusal *chp.ClusterChangeError
	var members []chp.NodeMember  // as far as they are known
	for refused := uint64(0); ; { // the term of the one that refuses
		leader, status, err := n.leader(ctx, members)
		switch {
		case err != nil && ctx.Err() == nil:
			return err
		case leader == "":
		case refused > 0 && made(status, c):
			return nil
		case status.Term == refused:
			return fail(exitRefused, "%s refuses: %s", leader, refusal.Reason)
		default:
			err = chp.ChangeCluster(ctx, leader, n.security, c)
			switch {
			case err == nil:
				return nil
			case !errors.As(err, &refusal):
				return fail(exitNoServer, "%s did not answer (%s); chp cluster status shows whether it was done", leader, n.whyUnanswered(leader, err))
			}
			refused, members = status.Term, status.Members
			continue
		}
		if !wake.Pause(ctx, leaderAgain) {
			return fail(exitRefused, "no node leads: a majority of the cluster does not answer")
		}
	}
}

// made reports whether a change is there in the eyes of the leader.
func made(st *chp.NodeStatus, c chp.ClusterChange) bool {
	is := map[uint64]chp.NodeMember{}
	for _, m := range st.Members {
		is[m.Node] = m
	}
	_, removes := is[c.Remove]
	promoted, promotes := is[c.Promote]
	return is[c.Add].Endpoint == c.Endpoint && !removes && (c.Promote == 0 || promotes && !promoted.Learner) && (c.Transfer == 0 || c.Transfer == st.Leader)
}

// leaderAgain is the pause before a command asks again who leads.
const leaderAgain = 100 * time.Millisecond

// leader returns the endpoint and the status of the leader, or "" if none leads now. It asks the members that are known if the servers
// do not answer: they may have been removed.
func (n *connection) leader(ctx context.Context, known []chp.NodeMember) (string, *chp.NodeStatus, error) {
	members, err := n.clusterOf(ctx)
	if err != nil && len(known) > 0 && ctx.Err() == nil {
		members = known
	} else if err != nil {
		return "", nil, err
	}
	var endpoints []string
	for _, m := range members {
		endpoints = append(endpoints, m.Endpoint)
	}
	leader, best := "", new(chp.NodeStatus)
	for i, r := range n.soon().ask(ctx, endpoints) {
		if c := r.status.Cluster; r.why == "" && c != nil && c.Leader == c.Node && c.Term > best.Term {
			leader, best = endpoints[i], c
		}
	}
	return leader, best, nil
}

// nodeCommand returns a command with the number of a node.
func nodeCommand(use, short, long string, args int, what func(node uint64, args []string) (chp.ClusterChange, string, error)) *cobra.Command {
	var n connection
	cmd := &cobra.Command{Use: use, Short: short, Long: long, Args: cobra.ArbitraryArgs}
	n.register(cmd, 30*time.Second)
	cmd.RunE = command.Runs(func(ctx context.Context, cmd *cobra.Command, given []string) error {
		if len(given) != args {
			return fail(exitUsage, "usage: chp cluster %s", use)
		}
		node, err := strconv.ParseUint(given[0], 10, 63)
		if err != nil || node == 0 {
			return fail(exitUsage, "%q is not the number of a node", given[0])
		}
		c, done, err := what(node, given[1:])
		if err != nil {
			return err
		}
		if err := n.change(ctx, c); err != nil {
			return err
		}
		_, err = fmt.Fprintln(cmd.OutOrStdout(), visible.String(done))
		return err
	})
	return cmd
}

func newClusterAdd() *cobra.Command {
	return nodeCommand("add NODE ENDPOINT", "Add a node to a cluster", `Adds a node, which gets the map and serves clients, and has no vote until chp
cluster promote. ENDPOINT is the first of its ports, tcp://HOST:PORT, as clients and
the other nodes reach it. NODE is a number that no node has had. Then the node is
started with chp serve --join, which can also do both.`,
		2, func(node uint64, args []string) (chp.ClusterChange, string, error) {
			if _, err := clusternode.Address(args[0], clusternode.Offset); err != nil {
				return chp.ClusterChange{}, "", fail(exitUsage, "%s", plain(err))
			}
			return chp.ClusterChange{Add: node, Endpoint: args[0]}, fmt.Sprintf("node %d is added, without a vote", node), nil
		})
}

func newClusterPromote() *cobra.Command {
	return nodeCommand("promote NODE", "Give a node a vote", `Gives a node that was added a vote. It must answer, and have nearly all of the log.`,
		1, func(node uint64, _ []string) (chp.ClusterChange, string, error) {
			return chp.ClusterChange{Promote: node}, fmt.Sprintf("node %d has a vote", node), nil
		})
}

func newClusterRemove() *cobra.Command {
	return nodeCommand("remove NODE", "Remove a node from a cluster", `Removes a node. It is refused if of the nodes that are left no majority answers. The
number is not used again, nor is the directory.`,
		1, func(node uint64, _ []string) (chp.ClusterChange, string, error) {
			return chp.ClusterChange{Remove: node}, fmt.Sprintf("node %d is removed", node), nil
		})
}

func newClusterTransfer() *cobra.Command {
	return nodeCommand("transfer NODE", "Make another node lead", `Makes a node lead, without a loss. A node that gets SIGTERM does that by itself.`,
		1, func(node uint64, _ []string) (chp.ClusterChange, string, error) {
			return chp.ClusterChange{Transfer: node}, fmt.Sprintf("node %d leads", node), nil
		})
}

// devNodes is the number of nodes of chp cluster dev, and devStep the distance of their ports.
const (
	devNodes = 3
	devStep  = 10
)

func newClusterDev() *cobra.Command {
	var dir, host string
	port := chp.DefaultPort
	cmd := &cobra.Command{
		Use:   "dev",
		Short: "Run a cluster of three nodes on this machine",
		Long: `Runs three nodes, each a process of its own, on the ports from --port on, ten apart,
with directories of their own below --data, and ends them when it ends. Kill one of the
processes that it names to see that nothing is lost; it is started again.`,
		Example: `  chp cluster dev
  chp set /lamp/1 on --server tcp://127.0.0.1:5556 --server tcp://127.0.0.1:5566`,
		Args: cobra.NoArgs,
	}
	cmd.Flags().StringVar(&host, "host", "127.0.0.1", "address of this machine to listen on")
	cmd.Flags().Var((*command.Number)(&port), "port", "first port of the first node")
	cmd.Flags().StringVar(&dir, "data", "", "`directory` for those of the nodes (default a temporary one, which is removed)")
	cmd.RunE = command.Runs(func(ctx context.Context, cmd *cobra.Command, _ []string) error {
		if port < 1 || port+(devNodes-1)*devStep+clusternode.Offset > maxPort {
			return fail(exitUsage, "--port %d: must be 1 to %d", port, maxPort-(devNodes-1)*devStep-clusternode.Offset)
		}
		if dir == "" {
			var err error
			if dir, err = os.MkdirTemp("", "chp-cluster-"); err != nil {
				return fail(exitRefused, "%s", plain(err))
			}
			defer os.RemoveAll(dir)
		}
		return runDev(ctx, dir, host, port, cmd.OutOrStdout(), cmd.ErrOrStderr())
	})
	return cmd
}

// runDev runs the nodes, until the context ends.
func runDev(ctx context.Context, dir, host string, port int, out, stderr io.Writer) error {
	self, err := os.Executable()
	if err != nil {
		return fail(exitRefused, "%s", plain(err))
	}
	var nodes, flags []string
	for i := range devNodes {
		at := "tcp://" + net.JoinHostPort(host, strconv.Itoa(port+i*devStep))
		nodes = append(nodes, fmt.Sprintf("%d=%s", i+1, at))
		flags = append(flags, "--server "+at)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var mu sync.Mutex // of the output
	var running sync.WaitGroup
	for i := range devNodes {
		running.Go(func() {
			for quick := 0; ctx.Err() == nil; {
				child := exec.CommandContext(ctx, self, "serve", "--node", strconv.Itoa(i+1), "--cluster", strings.Join(nodes, ","),
					"--data", filepath.Join(dir, "node"+strconv.Itoa(i+1)))
				child.Cancel = func() error { return child.Process.Signal(os.Interrupt) }
				child.WaitDelay = devGrace
				child.Stderr = &prefixed{to: stderr, mu: &mu, prefix: fmt.Sprintf("node %d: ", i+1)}
				began := time.Now()
				if err := child.Start(); err != nil {
					cancel(err)
					return
				}
				mu.Lock()
				fmt.Fprintf(out, "node %d: process %d, %s\n", i+1, child.Process.Pid, nodes[i][strings.IndexByte(nodes[i], '=')+1:])
				mu.Unlock()
				err := child.Wait()
				if ctx.Err() != nil {
					return
				}
				if quick++; time.Since(began) > time.Minute {
					quick = 0
				}
				if state, ok := child.ProcessState.Sys().(syscall.WaitStatus); (!ok || !state.Signaled()) && quick > 0 {
					cancel(fmt.Errorf("node %d has ended: %w", i+1, err))
					return
				}
			}
		})
	}
	mu.Lock()
	fmt.Fprintf(out, "clients: %s\n", strings.Join(flags, " "))
	mu.Unlock()
	running.Wait()
	if err := context.Cause(ctx); err != nil && !errors.Is(err, context.Canceled) {
		return fail(exitRefused, "%s", plain(err))
	}
	return nil
}

// devGrace is how long a node may take to end.
const devGrace = 5 * time.Second

// prefixed writes lines with a prefix.
type prefixed struct {
	to     io.Writer
	mu     *sync.Mutex
	prefix string
	rest   string
}

func (p *prefixed) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rest += string(b)
	for {
		line, rest, ok := strings.Cut(p.rest, "\n")
		if !ok {
			return len(b), nil
		}
		p.rest = rest
		if _, err := fmt.Fprintf(p.to, "%s%s\n", p.prefix, line); err != nil {
			return len(b), nil // the nodes go on
		}
	}
}
