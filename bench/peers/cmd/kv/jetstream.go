package main

import (
	"os"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"clustermap/bench/peers/internal/systems"
	"clustermap/internal/bench/link"
	"clustermap/internal/bench/pipeline"
)

// jetstreamSystem is a bucket of NATS JetStream's key-value store in memory, with one
// server. KeyValue.Put waits for each answer, so the publisher writes the bucket's subjects
// with PublishAsync, with many answers outstanding. The replica is a watcher of all keys;
// the table behind it is ours. The updates are bounded to what the history keeps of each key.
var jetstreamSystem = systems.System{
	Pipeline: pipeline.Pipeline{Name: "jetstream", Serve: serveJetStream, Publish: systems.PublishJetStream, Follow: systems.FollowJetStream},
	Share:    10, PerKey: systems.PerKey,
}

const jetstreamMemory = 8 << 30 // bytes that the server may use

func serveJetStream(p *link.Peer, ready func(...string)) error {
	ctx := p.Context()
	dir, err := os.MkdirTemp("", "kv-jetstream-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	o := systems.NATSOptions()
	o.JetStream, o.StoreDir, o.JetStreamMaxMemory = true, dir, jetstreamMemory
	s, err := systems.StartNATS(o)
	if err != nil {
		return err
	}
	defer func() {
		s.Shutdown()
		s.WaitForShutdown() // before its directory is removed
	}()
	c, err := systems.DialNATS(ctx, []string{s.ClientURL()}, nats.NoReconnect())
	if err != nil {
		return err
	}
	js, err := jetstream.New(c)
	if err != nil {
		return err
	}
	if _, err := js.CreateKeyValue(ctx, jetstream.KeyValueConfig{
		Bucket: systems.Bucket, History: systems.History, Storage: jetstream.MemoryStorage,
	}); err != nil {
		return err
	}
	ready(s.ClientURL())
	<-ctx.Done()
	return nil
}
