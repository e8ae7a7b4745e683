package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"clustermap/chp"
	"clustermap/chp/commit"
	"clustermap/internal/command"
	"clustermap/sockets"
	"clustermap/zmtp"

	"github.com/spf13/cobra"
)

// serveFlags holds the flags of serve. Most are fields of the options.
type serveFlags struct {
	chp.ServerOptions
	maxMap           command.Bytes
	historyBytes     command.Bytes
	curve            command.ServerKeys
	logLevel, format string
	load             string
	pair             pairFlags
	cluster          clusterFlags
	data             string
	retain           command.Bytes
	retainTime       time.Duration
	maxLine          command.Bytes
	ready            string
	http             httpFlags
	access           accessFlags
	audit            *slog.Logger // of --audit, or nil
}

func newServe() *cobra.Command {
	f := serveFlags{curve: command.ServerKeys{Keys: curve}, maxLine: defaultMaxLine, retain: chp.DefaultRetainBytes, ServerOptions: chp.ServerOptions{
		Port: chp.DefaultPort, Model: maxModel, MaxClients: chp.DefaultMaxClients, MaxValueSize: chp.DefaultMaxValueSize,
		SubscriberQueue: chp.DefaultSubscriberQueue, SubscriberMemory: chp.DefaultSubscriberMemory, SlowestIntake: chp.DefaultSlowestIntake,
		History: 1,
	}, historyBytes: chp.DefaultHistoryBytes}
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run a server",
		Long: `Runs a server on three ports: PORT (snapshots), PORT+1 (publisher) and PORT+2
(collector). When all three are open it prints a line with "ready" and the three
endpoints on standard error. SIGINT, SIGTERM and SIGHUP stop it; but if --curve-allow
or --access names a file, SIGHUP makes it read that again, as chp reload does, unless its
terminal was closed. A service manager that sets
$NOTIFY_SOCKET, as systemd does with Type=notify, is told too, and when it stops. A
server of a pair is ready for it when it is active or passive, or has not heard the
other one for twice --bstar-interval.

Without --curve-key there is neither authentication nor encryption: the default
host can be reached from this machine only. Open the server to a trusted network with
--host 0.0.0.0, or to any network with --curve-key and --curve-allow: then it accepts
only the owners of the keys in --curve-allow, and all traffic is encrypted. Clients
need the server's public key, which is printed before the server is ready.

With --access FILE the clients are those of the file, and may do what it says; see
docs/ACCESS.md. When it is read again, the clients whose rights have changed are disconnected;
a file with a mistake changes nothing. With --watch-config it is read when it has changed. With --plain
clients prove who they are by a name and a password, which are sent in clear text.

With --stamp every update gets the time when the server accepted it, and who sent it,
where that is known: with --curve-allow and a file, the text behind the key in its line,
or the key. Clients cannot change either; chp get --json, ls -l, watch --json and
history show them. With --history N the server keeps the last N updates of each key for
chp history, chp get --seq and chp revert, up to --history-bytes of all keys, across
restarts with --data and failovers. Both servers of a pair need these flags.

Administrators may make a server hand over (chp failover). With --curve-key these are
the owners of the keys in --curve-admin and of the server's own key, without it the
clients on this machine, and with --admin-anywhere all clients.

With --ready-file FILE the server creates FILE before it prints the line, and removes it
when it ends. Each line of it is what clients name as --server; so a script that starts
a server with --port 0 waits for the file and reads the port. A server that was killed
with SIGKILL leaves the file; the next one removes it before anything else, and refuses
any other one. While a server runs, it holds a lock on the file (flock), so "flock -n
FILE true" fails.

With --endpoint ipc://PATH it listens on three Unix sockets, the files PATH, PATH+1
and PATH+2, for programs on this machine whose users may write to these files.
--endpoint can be repeated, also with tcp://HOST:PORT; then there is a line with
"ready" for each. A pair with --endpoint needs --peer, --state and --peer-state.

The server remembers its last updates, up to --retain bytes and --retain-time: a client that
lost its connection for a while gets what it has missed, and not the whole map again, also
from the other server of a pair after a failover and, with --data, after a restart. chp watch
--since shows them. They take memory while the map is overwritten, in whole pieces of the log.

With --http 127.0.0.1:8080 the server answers HTTP requests of operators: /metrics for
Prometheus, /livez and /readyz (503 with the reason; ?verbose names all checks), and
/status, which is chp status --json. These requests only read, but there is no
authentication: open it to whom you trust. They must name the server by an IP address, as
localhost, or by a name of --http-name.

/v1/ of --http is the map for programs in any language: /v1/kv/KEY gets a value, /v1/watch/PREFIX/
follows changes as server-sent events; see docs/HTTP.md. Nothing can be changed there without
--http-write. Where clients prove who they are (--curve-key), and where more can reach --http than the
server's ports, there is no /v1/ without --http-token-file or --http-client-ca.

Without --data the map is in memory only. After a restart it is empty, and clients
delete the keys that they have. With --load it starts with the keys and times to live
of a dump (chp dump); the server is ready when they are loaded.

` + syncHelp + pairHelp + clusterHelp + `

With --model N, 1 to 5, the server implements that Clone model of the ZeroMQ Guide:
it sends no heartbeats, accepts updates on a PULL socket, and before model 5 sends
messages of three frames, without times to live. Before model 4 it has no subtrees.
In model 1 it publishes on PORT, sends no snapshots, and PORT+1 stays free. Clients
of this command then need --server-model N.`,
		Example: `  chp serve
  chp serve --host 0.0.0.0 --port 6000
  chp serve --port 0          # any three free ports in a row
  chp serve --port 0 --ready-file chp.ready
  chp serve --endpoint ipc:///run/chp/map --endpoint tcp://127.0.0.1:5556
  chp serve --load map.jsonl
  chp serve --model 4         # for programs of Clone model 4
  chp serve --data /var/lib/chp --sync always
  chp serve --primary         # and on the same machine, for a pair
  chp serve --backup
  chp serve --host 0.0.0.0 --curve-key server.key --curve-allow clients.txt`,
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&f.Host, "host", "127.0.0.1", "address to listen on")
	flags.Var((*command.Number)(&f.Port), "port", "first of the three ports; 0 takes three consecutive free ones")
	flags.StringArrayVar(&f.Endpoints, "endpoint", nil, "`endpoint` to listen on in place of --host and --port, tcp://HOST:PORT or ipc://PATH; repeat it for several")
	flags.Var((*command.Number)(&f.Model), "model", "Clone model to serve, 1 to 6; 6 is the full protocol")
	defer command.Endpoints(flags, "endpoint", "advertise")
	flags.StringVar(&f.Advertise, "advertise", "", "`endpoint` of the first port as clients reach it, as shown by chp status (default where it listens)")
	flags.DurationVar(&f.HeartbeatInterval, "heartbeat", chp.DefaultHeartbeatInterval, "time between two heartbeats (HUGZ)")
	flags.DurationVar(&f.HeartbeatInterval, "hugz", chp.DefaultHeartbeatInterval, "the same as --heartbeat")
	flags.Var((*command.Bytes)(&f.MaxValueSize), "max-value-size", "largest value accepted, such as 512KiB or 16MiB")
	flags.Var((*command.Bytes)(&f.SubscriberQueue), "subscriber-queue", "largest queue of a client; beyond it the client is disconnected and fetches a new snapshot")
	flags.Var((*command.Bytes)(&f.SlowestIntake), "slowest-intake", "lowest rate of updates, in bytes per second, while clients read too slowly; 0 never slows updates down")
	flags.Var((*command.Bytes)(&f.SubscriberMemory), "subscriber-memory", "largest sum of all queues; beyond it the clients furthest behind are disconnected")
	flags.Var(&f.retain, "retain", "how much of the last updates to remember, for clients that come back and chp watch --since; 0 means nothing")
	flags.DurationVar(&f.retainTime, "retain-time", chp.DefaultRetainTime, "how long to remember them; 0 means as long as --retain has room")
	flags.Var(&f.maxMap, "max-map", "largest total size of keys and values; 0 means no limit")
	flags.BoolVar(&f.Stamp, "stamp", false, "keep with each update when it was accepted, and who sent it: the name of its key in --curve-allow, or the key")
	flags.Var((*command.Number)(&f.History), "history", "versions of each key to keep for chp history, at most 64; 1 keeps no more than the map")
	flags.Var(&f.historyBytes, "history-bytes", "largest memory of all versions; beyond it the oldest are dropped")
	flags.Var((*command.Number)(&f.MaxClients), "max-clients", "largest number of connections on each port")
	flags.DurationVar(&f.SnapshotTimeout, "snapshot-timeout", chp.DefaultSnapshotTimeout, "how long a client may stop reading its snapshot")
	flags.DurationVar(&f.HandshakeTimeout, "handshake-timeout", chp.DefaultServerHandshake, "how long the handshake of a new connection may take")
	flags.DurationVar(&f.ExpiryGrace, "expiry-grace", chp.DefaultExpiryGrace, "how long after a start, a takeover or a standstill keys that were there before do not expire, so that clients can come back and refresh theirs; 0 means not at all")
	f.curve.Register(flags)
	f.curve.RegisterAdmin(flags)
	f.access.register(flags)
	flags.BoolVar(&f.AdminAnywhere, "admin-anywhere", false, "accept requests such as that of chp failover from every client; without it from clients with --curve-admin keys or the server's own and, without CURVE, on this machine")
	flags.StringVar(&f.load, "load", "", "`file` with a dump to load; - reads standard input")
	flags.StringVar(&f.data, "data", "", "`directory` to store the map in; --load is used only if it is empty")
	flags.TextVar(&f.Sync, "sync", commit.Policy{}, "when updates are flushed to disk: always, interval=`D`, never")
	flags.Var(&f.maxLine, "max-line", "longest line accepted in the dump of --load")
	f.pair.register(flags)
	f.cluster.register(flags)
	flags.StringVar(&f.ready, "ready-file", "", "`file` that exists while the server is ready, with what clients name as --server")
	f.http.register(flags)
	flags.StringVar(&f.logLevel, "log-level", "warn", "lowest level to log: debug, info, warn, error; or a `file` with one of these")
	flags.StringVar(&f.format, command.LogFormat, "text", "format of the log on standard error: text, json")
	if err := cmd.MarkFlagDirname("data"); err != nil {
		panic(err) // the flag does not exist
	}
	command.Complete(cmd, "model", "1", "2", "3", "4", "5", "6")
	command.Complete(cmd, "acks", "1", "2")
	command.Complete(cmd, "sync", "always", "interval=100ms", "never")
	command.Complete(cmd, "log-level", "debug", "info", "warn", "error")
	command.Complete(cmd, command.LogFormat, "text", "json")
	cmd.RunE = command.Runs(f.run)
	return cmd
}

func (f *serveFlags) run(ctx context.Context, cmd *cobra.Command, _ []string) error {
	// First: a file that a killed server has left says that there is one.
	ready := readyFile{name: f.ready}
	if err := ready.begin(); err != nil {
		return err
	}
	// Before anything else is printed: with --log-format json every line is JSON.
	logger, err := f.logger(cmd)
	if err != nil {
		return err
	}
	if err := f.check(cmd); err != nil {
		return err
	}
	o, err := f.options(ctx, cmd, logger)
	o.Logger = logger
	if err != nil {
		return err
	}
	audit, err := f.access.openAudit(f.Stamp)
	if err != nil {
		return err
	}
	if audit != nil {
		defer audit.Close()
		f.audit = audit.logger()
		o.Audit = f.audit
	}
	admin, err := f.http.listen(ctx, cmd, &o)
	if err != nil {
		return err
	}
	if f.access.watch && !command.Watches() {
		return fail(exitUsage, "--watch-config needs a file to watch, such as those of --access and --curve-key")
	}
	defer admin.close()
	server, err := f.start(ctx, cmd, o, admin)
	if server == nil || err != nil {
		return err
	}
	defer server.Close()
	admin.attach(server)
	if err := f.curve.Follow(f.keys(server)); err != nil {
		return err
	}
	return f.serve(ctx, cmd, server, o.Security, &ready)
}

// keys returns a function that gives a server the keys that were read, and disconnects the clients that are no longer
// accepted. Both servers of a pair have the same ones.
func (f *serveFlags) keys(server *chp.Server) func(own []zmtp.SecretKey, admins []zmtp.PublicKey) error {
	return func(own []zmtp.SecretKey, admins []zmtp.PublicKey) error {
		k := chp.ServerKeys{Own: own, Admins: admins}
		if f.pair.primary || f.pair.backup {
			for _, key := range own {
				k.Peer = append(k.Peer, key.Public())
			}
		}
		return errors.Join(server.SetKeys(k), f.cluster.setKeys(own))
	}
}

// check returns an error if a flag's value is out of range. It removes the brackets of an
// IPv6 address.
func (f *serveFlags) check(cmd *cobra.Command) error {
	switch {
	case f.Port < 0 || f.Port > maxPort:
		return fail(exitUsage, "--port %d: must be 1 to %d, with two more ports above it, or 0 for any free ports", f.Port, maxPort)
	case f.Model < 1 || f.Model > maxModel:
		return fail(exitUsage, "--model %d: must be 1 to %d", f.Model, maxModel)
	case f.retainTime < 0:
		return fail(exitUsage, "--retain-time %v: must be positive, or 0 for no limit", f.retainTime)
	case f.ExpiryGrace < 0:
		return fail(exitUsage, "--expiry-grace %v: must be positive, or 0 for none", f.ExpiryGrace)
	case cmd.Flags().Changed("sync") && f.data == "":
		return fail(exitUsage, "--sync needs --data: without a directory the map is only in memory")
	}
	for _, flag := range []struct {
		name     string
		positive bool
	}{
		{"heartbeat", f.HeartbeatInterval > 0},
		{"max-value-size", f.MaxValueSize > 0},
		{"subscriber-queue", f.SubscriberQueue > 0},
		{"subscriber-memory", f.SubscriberMemory > 0},
		{"max-clients", f.MaxClients > 0},
		{"history", f.History > 0},
		{"history-bytes", f.historyBytes > 0},
		{"max-line", f.maxLine > 0},
		{"snapshot-timeout", f.SnapshotTimeout > 0},
		{"handshake-timeout", f.HandshakeTimeout > 0},
	} {
		if !flag.positive {
			return fail(exitUsage, "--%s %v: must be positive", flag.name, cmd.Flags().Lookup(flag.name).Value)
		}
	}
	if n := len(f.Host); n > 2 && f.Host[0] == '[' && f.Host[n-1] == ']' {
		f.Host = f.Host[1 : n-1]
	}
	return f.checkEndpoints(cmd)
}

// options returns the options of the server, without its logs and the entries to load.
func (f *serveFlags) options(ctx context.Context, cmd *cobra.Command, logger *slog.Logger) (chp.ServerOptions, error) {
	f.curve.Others, f.curve.Again = f.access.name != "", true
	security, err := f.curve.Security()
	if err == nil {
		security, err = f.access.security(security)
	}
	if err != nil {
		return chp.ServerOptions{}, err
	}
	admins, err := f.curve.Admins()
	if err != nil {
		return chp.ServerOptions{}, err
	}
	pair, err := f.pair.options(cmd, f, security)
	if err != nil {
		return chp.ServerOptions{}, err
	}
	node, err := f.cluster.options(ctx, cmd, f, security, logger)
	if err != nil {
		return chp.ServerOptions{}, err
	}
	o := f.ServerOptions
	o.Cluster = node
	o.Pair, o.Security, o.Admins, o.OnReplay, o.MaxMapBytes = pair, security, admins, f.replaying(cmd), int64(f.maxMap)
	o.HistoryBytes = int64(f.historyBytes)
	if f.access.file != nil {
		o.Access = f.access.file
	}
	if security.CurveServer && f.access.file == nil {
		o.Accepted = func(client *sockets.Peer) bool { return f.curve.Accepts(client.PublicKey()) }
	}
	o.Reload = func(context.Context) error { return command.Reread("chp", cmd.ErrOrStderr()) }
	if len(f.Endpoints) > 0 {
		o.Host, o.Port = "", 0
	}
	o.RetainBytes, o.RetainTime = int(f.retain), f.retainTime
	// To the command 0 means never and not at all, to the package the default.
	if o.RetainBytes == 0 {
		o.RetainBytes = -1
	}
	if o.RetainTime == 0 {
		o.RetainTime = -1
	}
	if o.SlowestIntake == 0 {
		o.SlowestIntake = -1
	}
	if o.ExpiryGrace == 0 {
		o.ExpiryGrace = -1
	}
	return o, nil
}

// start returns a server that listens. It returns no server and no error if a signal came
// first.
func (f *serveFlags) start(ctx context.Context, cmd *cobra.Command, o chp.ServerOptions, admin *adminServer) (*chp.Server, error) {
	loading, err := f.open(cmd)
	if err != nil {
		return nil, err
	}
	if o.Cluster != nil { // the node opens the directory
		f.cluster.synced = admin.syncs()
	} else {
		if o.Log, err = f.openData(ctx, admin.syncs()); err != nil {
			return nil, err
		}
	}
	o.Preload = loading.entries(ctx)
	server, err := chp.NewServer(o)
	if finished, err := loading.finish(ctx, cmd, err); finished {
		return nil, err
	}
	var option *chp.OptionError
	switch {
	case errors.As(err, &option) && option.Field == "Host":
		return nil, fail(exitUsage, "--host %s", option.Reason)
	case option != nil:
		return nil, fail(exitUsage, "%s", plain(err))
	case err != nil && ctx.Err() != nil:
		return nil, nil
	case errors.As(err, new(*chp.ListenError)): // of the port for other nodes
		return nil, f.listenError(err, o.Pair)
	case err != nil:
		return nil, f.dataError(err)
	}
	if err := server.Listen(ctx); err != nil {
		server.Close()
		if ctx.Err() != nil {
			return nil, nil
		}
		return nil, f.listenError(err, o.Pair)
	}
	return server, nil
}

// serve serves until ctx ends. Meanwhile the ready file, the service manager and standard
// error say that the server is ready, in this order.
func (f *serveFlags) serve(ctx context.Context, cmd *cobra.Command, server *chp.Server, security sockets.Security, ready *readyFile) error {
	var telling sync.WaitGroup
	serving, end := context.WithCancel(ctx)
	defer end()
	written := make(chan struct{}) // closed when the server is ready, and the file says so
	var unwritten error
	telling.Go(func() {
		select {
		case <-server.Ready():
		case <-serving.Done():
			return
		}
		if unwritten = ready.write(server.AllEndpoints()); unwritten != nil {
			end()
			return
		}
		close(written)
	})
	telling.Go(func() {
		select {
		case <-written:
		case <-serving.Done():
		}
		tellManager(serving, server, 2*f.pair.interval, func(err error) {
			go fmt.Fprintf(cmd.ErrOrStderr(), "chp: cannot tell the service manager: %v\n", err)
		})
	})
	if f.access.every {
		telling.Go(func() {
			if err := server.AuditWrites(serving, f.audit); err != nil {
				command.Say(cmd.ErrOrStderr(), fmt.Sprintf("chp: warning: updates are no longer audited: %v\n", err))
			}
		})
	}
	if f.access.watch {
		telling.Go(func() { command.WatchSources(serving, "chp", cmd.ErrOrStderr()) })
	}
	if f.cluster.joined != nil {
		telling.Go(func() { f.cluster.joined(serving, server) })
	}
	// Not awaited, because standard error may be a pipe without a reader.
	go f.announce(serving, cmd.ErrOrStderr(), server, security, written)
	err := server.Serve(serving)
	end()
	telling.Wait()
	if removed := ready.remove(); unwritten == nil {
		unwritten = removed
	}
	if err != nil {
		return f.dataError(err)
	}
	return unwritten
}

// announce prints the server's public key, and where it listens when it is ready.
func (f *serveFlags) announce(serving context.Context, out io.Writer, server *chp.Server, security sockets.Security, ready <-chan struct{}) {
	if security.CurveServer {
		fmt.Fprintf(out, "chp: clients need --curve-server-key '%s'\n", security.CurveSecretKey.Public())
	}
	select {
	case <-ready:
		for _, e := range server.AllEndpoints() {
			snapshots := "snapshots " + e.Snapshot + ", "
			if e.Snapshot == "" {
				snapshots = ""
			}
			fmt.Fprintf(out, "chp: %sready: %spublisher %s, collector %s\n", f.pair.role(), snapshots, e.Publisher, e.Collector)
		}
	case <-serving.Done():
	}
}

func (f *serveFlags) logger(cmd *cobra.Command) (*slog.Logger, error) {
	var level slog.LevelVar
	l, err := parseLevel(f.logLevel)
	if err != nil {
		load := func() (apply func() error, now string, err error) {
			text, err := readLine(f.logLevel)
			var l slog.Level
			if err == nil {
				l, err = parseLevel(text)
			}
			return func() error { level.Set(l); return nil }, text, err
		}
		if _, missing := os.Stat(f.logLevel); missing != nil {
			return nil, fail(exitUsage, "--log-level %q: must be debug, info, warn or error, or a file with one of these", f.logLevel)
		}
		command.AddSource(command.Source{Flag: "log-level", Files: []string{f.logLevel}, Stays: "the level stays as it was", Load: load})
		apply, _, err := load()
		if err != nil {
			return nil, fail(exitUsage, "--log-level: %v", err)
		}
		_ = apply() // it does not fail
	} else {
		level.Set(l)
	}
	o := &slog.HandlerOptions{Level: &level}
	switch f.format {
	case "text":
		return slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), o)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(cmd.ErrOrStderr(), o)), nil
	}
	return nil, fail(exitUsage, "--log-format %q: must be text or json", f.format)
}

// parseLevel parses the name of a level.
func parseLevel(text string) (level slog.Level, err error) {
	if level.UnmarshalText([]byte(text)) != nil {
		return level, fmt.Errorf("%q is none of debug, info, warn and error", text)
	}
	return level, nil
}

// readLine returns the text of a short file, without spaces around it.
func readLine(name string) (string, error) {
	file, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, 64))
	return strings.TrimSpace(string(text)), err
}
