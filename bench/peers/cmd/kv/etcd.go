package main

import (
	"net/url"
	"os"

	"go.etcd.io/etcd/server/v3/embed"

	"clustermap/bench/peers/internal/systems"
	"clustermap/internal/bench/link"
	"clustermap/internal/bench/pipeline"
)

// etcdSystem is one etcd server, in its own process. It does more than the others: each
// update goes through a log of Raft and a database of versions. To be as fast as it can
// with one server, it does not flush the log (UnsafeNoFsync). The publisher has 512 Puts
// under way over four connections; those of one key follow each other. The replica is a
// watch of all keys; the table behind it is ours. etcd does not conflate.
var etcdSystem = systems.System{
	Pipeline: pipeline.Pipeline{Name: "etcd", Serve: serveEtcd, Publish: systems.PublishEtcd, Follow: systems.FollowEtcd},
	Share:    100, Lanes: systems.EtcdLanes,
}

func serveEtcd(p *link.Peer, ready func(...string)) error {
	dir, err := os.MkdirTemp("", "kv-etcd-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	c := embed.NewConfig()
	local := []url.URL{{Scheme: "http", Host: loopback}}
	c.Dir, c.LogLevel, c.QuotaBackendBytes, c.UnsafeNoFsync = dir, "fatal", systems.EtcdQuota, true
	c.ListenClientUrls, c.AdvertiseClientUrls, c.ListenPeerUrls, c.AdvertisePeerUrls = local, local, local, local
	c.InitialCluster = c.InitialClusterFromName(c.Name)
	return systems.ServeEtcd(p.Context(), c, ready)
}
