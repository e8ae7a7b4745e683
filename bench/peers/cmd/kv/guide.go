package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"clustermap/bench/peers/internal/systems"
	"clustermap/internal/bench/link"
	"clustermap/internal/bench/pipeline"
	"clustermap/internal/bench/worker"
)

// guideSystem is a CHP server as the ZeroMQ Guide builds them, on CZMQ, its library: a
// reactor that polls before each message, messages that are lists of frames, and CZMQ's
// hash table. Publisher and replica are those of cloneSystem, and so are the length of the
// queues and that nothing is dropped. The server is compiled when it starts, so only this
// system needs CZMQ (Debian: libczmq-dev) and the command cc.
var guideSystem = systems.System{Pipeline: pipeline.Pipeline{Name: "guide", Serve: serveGuide, Publish: publishClone, Follow: followClone}, Share: 16}

//go:embed guide/server.c
var guideServer string

func serveGuide(p *link.Peer, ready func(...string)) error {
	ctx := p.Context()
	cc, err := exec.LookPath("cc")
	if err != nil {
		return fmt.Errorf("cc %w", worker.ErrMissing)
	}
	dir, err := os.MkdirTemp("", "kv-guide-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if out, err := compile(ctx, cc, "#include <czmq.h>\n", "-fsyntax-only"); err != nil {
		if ctx.Err() != nil {
			return nil // it was ended
		}
		return fmt.Errorf("CZMQ's header %w: %s", worker.ErrMissing, strings.TrimSpace(out))
	}
	program := filepath.Join(dir, "server")
	if out, err := compile(ctx, cc, guideServer, "-O2", "-o", program, "-lczmq", "-lzmq"); err != nil {
		return fmt.Errorf("compile the server: %w: %s", err, strings.TrimSpace(out))
	}
	return runGuide(ctx, program, ready)
}

// compile compiles a C program and returns the compiler's output.
func compile(ctx context.Context, cc, source string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, cc, append([]string{"-x", "c", "-", "-x", "none"}, args...)...)
	cmd.Stdin = strings.NewReader(source)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// runGuide runs the server until ctx ends.
func runGuide(ctx context.Context, program string, ready func(...string)) error {
	cmd := exec.CommandContext(ctx, program)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	servers := make([]string, 3)
	_, err = fmt.Fscan(out, &servers[0], &servers[1], &servers[2])
	if err == nil {
		ready(servers...)
		_, _ = io.Copy(io.Discard, out) // until it ends; Wait tells why
	}
	err = errors.Join(err, cmd.Wait())
	if ctx.Err() != nil {
		return nil // it was ended
	}
	return fmt.Errorf("the server ended: %w", err)
}
