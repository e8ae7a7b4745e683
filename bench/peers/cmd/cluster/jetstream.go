package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"clustermap/bench/peers/internal/systems"
	"clustermap/internal/bench/link"
	"clustermap/internal/bench/pipeline"
	"clustermap/internal/bench/ports"
)

// jetstreamSystem is a bucket of NATS JetStream's key-value store with three replicas on disk, in a cluster
// of three servers with sync_interval: always, so that each flushes before it answers. By default they
// flush every two minutes. The leader is that of the bucket's stream. The history is the longest
// one, as in cmd/kv, and the updates of a key are bounded, so that the watcher misses none.
var jetstreamSystem = system{
	name: "jetstream",
	System: systems.System{
		Pipeline: pipeline.Pipeline{Name: "jetstream", Serve: serveJetStream, Publish: systems.PublishJetStream, Follow: systems.FollowJetStream},
		Share:    20, PerKey: systems.PerKey,
	},
	servers: jetstreamServers, dial: dialJetStream,
	order: func(ctx context.Context, servers []string, patience time.Duration) ([]string, error) {
		return leaderFirst(ctx, servers, patience, jetstreamLeads)
	},
	without: map[string]string{modeReads: "it has no linearizable read: any replica may answer, also one that is behind"},
}

// natsNode are the arguments of a server.
type natsNode struct {
	Name, Dir, Host string
	Client, Route   int      // ports
	Routes          []string // of all
}

func jetstreamServers(dir string, _ time.Duration) ([]any, error) {
	host := ports.Own()
	first, err := ports.Free(host, 2*nodes)
	if err != nil {
		return nil, err
	}
	var routes []string
	for i := range nodes {
		routes = append(routes, fmt.Sprintf("nats://%s:%d", host, first+2*i+1))
	}
	var args []any
	for i := range nodes {
		name := fmt.Sprint("server", i+1)
		args = append(args, natsNode{name, filepath.Join(dir, name), host, first + 2*i, first + 2*i + 1, routes})
	}
	return args, nil
}

func serveJetStream(p *link.Peer, ready func(...string)) error {
	var n natsNode
	if err := json.Unmarshal(p.Args, &n); err != nil {
		return err
	}
	o := systems.NATSOptions()
	o.ServerName, o.Host, o.Port, o.JetStream, o.StoreDir, o.SyncAlways = n.Name, n.Host, n.Client, true, n.Dir, true
	o.Cluster = server.ClusterOpts{Name: "bench", Host: n.Host, Port: n.Route}
	for _, r := range n.Routes {
		o.Routes = append(o.Routes, server.RoutesFromStr(r)...)
	}
	s, err := systems.StartNATS(o)
	if err != nil {
		return err
	}
	ready(s.ClientURL())
	<-p.Context().Done()
	s.Shutdown()
	s.WaitForShutdown() // before its directory is removed
	return nil
}

// jetstreamLeads reports whether a server leads the bucket's stream, which it creates if it is not there. All
// replicas must have it.
func jetstreamLeads(ctx context.Context, server string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, jetstreamTimeout)
	defer cancel()
	c, err := systems.DialNATS(ctx, []string{server}, nats.NoReconnect())
	if err != nil {
		return false, err
	}
	js, err := jetstream.New(c)
	if err != nil {
		return false, err
	}
	stream, err := js.Stream(ctx, "KV_"+systems.Bucket)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		_, err = js.CreateKeyValue(ctx, jetstream.KeyValueConfig{
			Bucket: systems.Bucket, History: systems.History, Storage: jetstream.FileStorage, Replicas: nodes,
		})
		return false, err
	} else if err != nil {
		return false, err
	}
	cluster := stream.CachedInfo().Cluster
	if cluster == nil || cluster.Leader != c.ConnectedServerName() {
		return false, nil
	}
	for _, r := range cluster.Replicas {
		if !r.Current {
			return false, fmt.Errorf("%s has not all of the stream", r.Name)
		}
	}
	return len(cluster.Replicas) == nodes-1, nil
}

// jetstreamTimeout bounds a request whose answer may never come: a cluster that begins drops some.
const jetstreamTimeout = 5 * time.Second

type jetstreamCaller struct {
	c      *nats.Conn
	bucket jetstream.KeyValue
}

func dialJetStream(ctx context.Context, servers []string) (caller, error) {
	c, err := systems.DialNATS(ctx, servers, nats.MaxReconnects(-1))
	if err != nil {
		return nil, err
	}
	js, err := jetstream.New(c)
	if err != nil {
		return nil, err
	}
	bucket, err := js.KeyValue(ctx, systems.Bucket)
	return &jetstreamCaller{c, bucket}, err
}

func (c *jetstreamCaller) put(ctx context.Context, key string, value []byte) error {
	_, err := c.bucket.Put(ctx, key, value)
	return err
}

func (c *jetstreamCaller) get(ctx context.Context, key string) error {
	_, err := c.bucket.Get(ctx, key)
	return err
}

func (c *jetstreamCaller) close() { c.c.Close() }
