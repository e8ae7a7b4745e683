package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"time"

	"clustermap/bench/peers/internal/systems"
	"clustermap/internal/bench/bare"
	"clustermap/internal/bench/link"
	"clustermap/internal/bench/pipeline"
	"clustermap/internal/bench/worker"
)

// redisSystem is one Redis server, the program redis-server, in memory only. Each update is
// a SET and a PUBLISH of key and value on one channel, in a pipeline whose answers are
// switched off (CLIENT REPLY OFF). A replica subscribes to the channel; its table is ours,
// and so is the code that speaks the protocol, which does less than a client library. By
// default Redis disconnects a subscriber that is 32 MB behind: that limit is lifted, so
// nothing is lost. A replica that joins late would have to fetch the map as well, which
// this one does not.
var redisSystem = systems.System{Pipeline: pipeline.Pipeline{Name: "redis", Serve: serveRedis, Publish: publishRedis, Follow: followRedis}, Share: 4}

const redisChannel = "bench"

// redisTries is how many ports are tried: another program may take one before Redis does.
const redisTries = 10

func serveRedis(p *link.Peer, ready func(...string)) error {
	ctx := p.Context()
	program, err := exec.LookPath("redis-server")
	if err != nil {
		return fmt.Errorf("redis-server %w", worker.ErrMissing)
	}
	dir, err := os.MkdirTemp("", "kv-redis-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	for range redisTries {
		var began bool
		if began, err = runRedis(ctx, program, dir, ready); began || ctx.Err() != nil {
			break
		}
	}
	if ctx.Err() != nil {
		return nil // it was ended
	}
	return err
}

// runRedis runs a server until it or ctx ends, and reports whether it began to serve.
func runRedis(ctx context.Context, program, dir string, ready func(...string)) (began bool, err error) {
	l, err := net.Listen("tcp", loopback)
	if err != nil {
		return false, err
	}
	address := l.Addr().String()
	_, port, _ := net.SplitHostPort(address) // it has just been made of both
	l.Close()

	cmd := exec.CommandContext(ctx, program, "--bind", "127.0.0.1", "--port", port, "--dir", dir, "--daemonize", "no",
		"--save", "", "--appendonly", "no", "--loglevel", "warning", "--client-output-buffer-limit", "pubsub 0 0 0")
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return false, err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for !serves(address, cmd.Process.Pid) {
		select {
		case err := <-ended:
			return false, fmt.Errorf("redis-server ended: %w", err)
		case <-time.After(5 * time.Millisecond):
		}
	}
	ready(address)
	return true, <-ended
}

// serves reports whether the process serves there, and not another one that was faster.
func serves(address string, pid int) bool {
	c, err := net.DialTimeout("tcp", address, time.Second)
	if err != nil {
		return false
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Second)) // if it fails, so do the reads
	r := newRESP(c)
	r.command("INFO", "server")
	if err := r.push(); err != nil {
		return false
	}
	info, err := r.bulk()
	return err == nil && strings.Contains(string(info), fmt.Sprintf("\nprocess_id:%d\r\n", pid))
}

func dialRedis(p *link.Peer) (*resp, error) {
	c, err := bare.Dial(p.Context(), p.Servers[0])
	if err != nil {
		return nil, err
	}
	return newRESP(c), nil
}

type redisPublisher struct {
	*resp
	publishes bool // and not only sets
	message   []byte
}

func publishRedis(p *link.Peer) (pipeline.Publisher, error) { return newRedisPublisher(p, true) }

func newRedisPublisher(p *link.Peer, publishes bool) (pipeline.Publisher, error) {
	c, err := dialRedis(p)
	if err != nil {
		return nil, err
	}
	c.command("CLIENT", "REPLY", "OFF")
	return &redisPublisher{resp: c, publishes: publishes}, c.push()
}

func (p *redisPublisher) Set(_ int, key string, value []byte) error {
	start := len(p.out)
	p.begin(3)
	p.out = appendBulk(p.out, "SET")
	p.out = appendBulk(p.out, key)
	p.out = appendBulk(p.out, value)
	if p.publishes {
		p.message = appendMessage(p.message[:0], key, value)
		p.begin(3)
		p.out = appendBulk(p.out, "PUBLISH")
		p.out = appendBulk(p.out, redisChannel)
		p.out = appendBulk(p.out, p.message)
	}
	if 2*len(p.out)-start > bare.BufferSize { // another one would not fit
		return p.push()
	}
	return nil
}

func (p *redisPublisher) Push() error { return p.push() }

// Settle switches answers on, and off again: the one answer comes behind every update.
func (p *redisPublisher) Settle(context.Context) error {
	p.command("CLIENT", "REPLY", "ON")
	p.command("CLIENT", "REPLY", "OFF")
	if err := p.push(); err != nil {
		return err
	}
	_, err := p.line()
	return err
}

type redisReplica struct {
	systems.Held
	c *resp
}

func followRedis(p *link.Peer, r *pipeline.Receiver) (pipeline.Replica, error) {
	c, err := dialRedis(p)
	if err != nil {
		return nil, err
	}
	c.command("SUBSCRIBE", redisChannel)
	if err := c.push(); err != nil {
		return nil, err
	}
	return &redisReplica{systems.NewHeld(p, r), c}, c.skip()
}

// Run reads messages.
func (r *redisReplica) Run(ctx context.Context) error {
	defer context.AfterFunc(ctx, func() { r.c.Close() })()
	for {
		// message, channel, payload
		if err := r.c.count('*', 3); err != nil {
			return err
		}
		for range 2 {
			if _, err := r.c.bulk(); err != nil {
				return err
			}
		}
		b, err := r.c.bulk()
		if err != nil {
			return err
		}
		key, value, err := cutMessage(b)
		if err != nil {
			return err
		}
		if !r.Apply(key, value) {
			return nil
		}
	}
}
