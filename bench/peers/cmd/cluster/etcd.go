package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"

	"clustermap/bench/peers/internal/systems"
	"clustermap/internal/bench/link"
	"clustermap/internal/bench/pipeline"
	"clustermap/internal/bench/ports"
)

// etcdSystem is three members of etcd with their defaults: each flushes its log before it answers. The
// publisher has 512 Puts under way over four connections to the leader. Reads are linearizable, which is
// the default of Get.
var etcdSystem = system{
	name: "etcd",
	System: systems.System{
		Pipeline: pipeline.Pipeline{Name: "etcd", Serve: serveEtcd, Publish: systems.PublishEtcd, Follow: systems.FollowEtcd},
		Share:    100, Lanes: systems.EtcdLanes,
	},
	servers: etcdServers, dial: dialEtcd,
	order: func(ctx context.Context, servers []string, patience time.Duration) ([]string, error) {
		return leaderFirst(ctx, servers, patience, etcdLeads)
	},
}

// etcdMember are the arguments of a member.
type etcdMember struct {
	Name, Dir, Client, Peer string
	Cluster                 string // names and peer URLs of all
	Election                time.Duration
}

func etcdServers(dir string, election time.Duration) ([]any, error) {
	host := ports.Own()
	first, err := ports.Free(host, 2*nodes)
	if err != nil {
		return nil, err
	}
	var members []etcdMember
	var cluster []string
	for i := range nodes {
		m := etcdMember{
			Name: fmt.Sprint("member", i+1), Dir: filepath.Join(dir, fmt.Sprint("member", i+1)), Election: election,
			Client: fmt.Sprintf("%s:%d", host, first+2*i), Peer: fmt.Sprintf("%s:%d", host, first+2*i+1),
		}
		cluster = append(cluster, m.Name+"=http://"+m.Peer)
		members = append(members, m)
	}
	var args []any
	for _, m := range members {
		m.Cluster = strings.Join(cluster, ",")
		args = append(args, m)
	}
	return args, nil
}

func serveEtcd(p *link.Peer, ready func(...string)) error {
	var m etcdMember
	if err := json.Unmarshal(p.Args, &m); err != nil {
		return err
	}
	c := embed.NewConfig()
	client, peer := []url.URL{{Scheme: "http", Host: m.Client}}, []url.URL{{Scheme: "http", Host: m.Peer}}
	c.Name, c.Dir, c.LogLevel, c.QuotaBackendBytes, c.InitialCluster = m.Name, m.Dir, "fatal", systems.EtcdQuota, m.Cluster
	c.ListenClientUrls, c.AdvertiseClientUrls, c.ListenPeerUrls, c.AdvertisePeerUrls = client, client, peer, peer
	if m.Election > 0 {
		c.ElectionMs = uint(m.Election.Milliseconds())
	}
	return systems.ServeEtcd(p.Context(), c, ready)
}

func etcdLeads(ctx context.Context, server string) (bool, error) {
	c, err := systems.DialEtcd(ctx, []string{server})
	if err != nil {
		return false, err
	}
	defer c.Close()
	st, err := c.Status(ctx, server)
	return err == nil && st.Leader == st.Header.MemberId, err
}

type etcdCaller struct{ *clientv3.Client }

func dialEtcd(ctx context.Context, servers []string) (caller, error) {
	c, err := systems.DialEtcd(ctx, servers)
	return etcdCaller{c}, err
}

func (c etcdCaller) put(ctx context.Context, key string, value []byte) error {
	_, err := c.Put(ctx, key, string(value))
	return err
}

func (c etcdCaller) get(ctx context.Context, key string) error {
	answer, err := c.Get(ctx, key)
	if err == nil && answer.Count != 1 {
		err = errNoValue
	}
	return err
}

func (c etcdCaller) close() { c.Close() }
