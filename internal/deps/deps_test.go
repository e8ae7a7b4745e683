// Package deps checks the directions of dependencies between this module's packages,
// and which other modules they use:
//
//	internal/* ◀── zmtp ◀── sockets ◀── chp ◀── cmd
//	internal/ipcpath ◀── internal/link ◀── internal/engine ◀── internal/route ◀── sockets
//	internal/engine ◀── internal/hooks ◀── sockets, chp, patterns
//	internal/link ◀── sockets, chp, patterns, cmd
//	internal/link ◀── chp/internal/ports ◀── chp
//	internal/topic ◀── internal/fanout ◀── internal/subscriber ◀── sockets
//	internal/ipcpath ◀── chp, cmd
//	internal/visible ◀── chp, patterns, internal/command, internal/jsonline, cmd
//	internal/jsonline, chp ◀── internal/kvjson ◀── chp/httpkv, cmd
//	internal/lograte, sockets ◀── internal/peerlog ◀── chp, patterns/majordomo, internal/command
//	zmtp ◀── internal/queue ◀── internal/fanout, internal/engine ◀── sockets
//	internal/link, internal/queue ◀── internal/bounds, internal/connection ◀── internal/engine
//	internal/kvmsg ◀── internal/store ◀── chp/internal/state ◀── chp
//	internal/kvmsg ◀── internal/timer ◀── chp/internal/state ◀── chp
//	chp/internal/subtree, sockets ◀── chp/internal/wire ◀── chp
//	chp/internal/wire ◀── chp/internal/confirm ◀── chp
//	internal/store ◀── chp/internal/retain ◀── chp/internal/order, chp/internal/snapshot, chp/internal/journal/disk
//	internal/kvmsg ◀── chp/internal/subtree ◀── chp
//	chp/internal/ledger ◀── chp/internal/submit ◀── chp/internal/follow ◀── chp
//	chp/internal/live, chp/internal/wire ◀── chp/internal/follow
//	chp/internal/subtree, internal/store, internal/timer ◀── chp/internal/watch ◀── chp
//	chp/internal/watch, chp/internal/state ◀── chp/internal/live ◀── chp
//	chp/internal/wire, chp/internal/live ◀── chp/internal/snapshot ◀── chp
//	internal/kvmsg ◀── chp/internal/ledger, chp/internal/history ◀── chp/internal/state
//	chp/internal/state ◀── chp/internal/journal ◀── chp/internal/journal/disk, chp/internal/journal/pair ◀── chp
//	chp/commit ◀── chp/internal/journal/disk
//	chp/internal/journal, chp/internal/live, chp/internal/wire ◀── chp/internal/order ◀── chp/internal/collect ◀── chp
//	chp/internal/order, chp/internal/journal/pair, patterns/binarystar ◀── chp/internal/partner ◀── chp
//	                        sockets ◀── patterns/binarystar ◀── chp
//	                        sockets ◀── patterns/internal/subscribe ◀── patterns/{binarystar,blackbox,snail}
//	                        sockets ◀── patterns/blackbox
//	                        sockets ◀── patterns/freelance ◀── cmd
//	                        sockets ◀── patterns/majordomo ◀── patterns/titanic
//	               chp/commit ◀── chp/durable ◀── cmd
//	                      chp ◀── chp/admin, chp/httpkv ◀── cmd
//	                            chp/page ◀── cmd
//	                        sockets ◀── sockets/metrics ◀── cmd
//	     sockets, chp/durable ◀── chp/cluster ◀── internal/clusternode ◀── cmd, internal/bench
//	                      chp ◀── chp/recipes ◀── cmd
//	                      chp ◀── chp/access ◀── cmd
//	chp/internal/subtree, sockets ◀── chp/internal/rights ◀── chp
//	chp/commit ◀── chp/durable/internal/file ◀── chp/durable/internal/format ◀── chp/durable/internal/segment ◀── chp/durable
//	                        sockets ◀── internal/command ◀── cmd
//	chp, chp/durable ◀── internal/bench ◀── cmd
//
// The message, the store and the timing wheel do not use the network: a map is the same
// in a server, in a client and alone. Package chp/commit uses no other modules. Only
// chp/durable, chp/cluster, patterns/titanic and the commands may use libraries for storage on disk.
package deps

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"clustermap/internal/version"
)

var module = version.Module

// root is the path of the module's folder.
const root = "../.."

// rules lists the allowed dependencies of each library package, direct or not, in
// addition to the standard library. This module's internal packages are allowed too,
// except for internal packages, which may only use the listed ones.
var rules = []struct {
	path    string
	own     []string // packages of this module
	std     []string // packages of the standard library that it must not depend on
	imports []string // packages of the standard library that it must not import itself
	out     []string // packages of other modules
}{
	{
		path: "zmtp",
		// Sans-IO: bytes in, bytes out.
		std: []string{"net", "crypto/tls", "os/exec"},
		out: []string{"golang.org/x/sys", "golang.org/x/crypto"},
	},
	{
		path: "sockets",
		own:  []string{"zmtp"},
		std:  []string{"net/http"},
		out:  []string{"golang.org/x/sys", "golang.org/x/crypto", "github.com/google/uuid"},
	},
	{
		path: "internal/topic",
		std:  []string{"net", "os"},
	},
	{
		path: "internal/link",
		own:  []string{"internal/ipcpath"},
		std:  []string{"crypto", "net/http", "os/exec"},
		out:  []string{"golang.org/x/sys"},
	},
	{
		path: "chp",
		own:  []string{"zmtp", "sockets", "chp/commit", "patterns/binarystar", "patterns/internal/subscribe"},
		std:  []string{"net/http"},
		out:  []string{"golang.org/x/sys", "golang.org/x/crypto", "github.com/klauspost/cpuid/v2", "github.com/google/uuid"},
	},
	{
		path: "chp/recipes",
		// What it does, any program can do with package chp.
		own: []string{"chp", "zmtp", "sockets", "chp/commit", "patterns/binarystar", "patterns/internal/subscribe"},
		std: []string{"net/http"},
		out: []string{"golang.org/x/sys", "golang.org/x/crypto", "github.com/klauspost/cpuid/v2", "github.com/google/uuid"},
	},
	{
		path: "chp/admin",
		own:  []string{"chp", "zmtp", "sockets", "chp/commit", "patterns/binarystar", "patterns/internal/subscribe"},
		out:  []string{"golang.org/x/sys", "golang.org/x/crypto", "github.com/klauspost/cpuid/v2", "github.com/google/uuid", "github.com/prometheus", "github.com/beorn7/perks", "github.com/cespare/xxhash/v2", "github.com/munnerz/goautoneg", "go.yaml.in", "google.golang.org/protobuf"}, // what Prometheus' client depends on
	},
	{
		path: "sockets/metrics",
		own:  []string{"zmtp", "sockets"},
		out:  []string{"golang.org/x/sys", "golang.org/x/crypto", "github.com/prometheus", "github.com/beorn7/perks", "github.com/cespare/xxhash/v2", "github.com/munnerz/goautoneg", "go.yaml.in", "google.golang.org/protobuf"},
	},
	{
		path: "chp/access",
		own:  []string{"chp", "zmtp", "sockets", "chp/commit", "patterns/binarystar", "patterns/internal/subscribe"},
		std:  []string{"net/http"},
		out:  []string{"golang.org/x/sys", "golang.org/x/crypto", "github.com/klauspost/cpuid/v2", "github.com/google/uuid", "github.com/pelletier/go-toml/v2"},
	},
	{
		path: "chp/internal/rights",
		own:  []string{"chp/internal/subtree", "internal", "zmtp", "sockets"},
		std:  []string{"net/http"},
		out:  []string{"golang.org/x/sys", "golang.org/x/crypto", "github.com/klauspost/cpuid/v2", "github.com/google/uuid"}, // the sockets'
	},
	{
		path: "chp/page",
	},
	{
		path: "chp/httpkv",
		own:  []string{"chp", "zmtp", "sockets", "chp/commit", "patterns/binarystar", "patterns/internal/subscribe"},
		out:  []string{"golang.org/x/sys", "golang.org/x/crypto", "github.com/klauspost/cpuid/v2", "github.com/google/uuid"},
	},
	{
		path: "internal/kvmsg",
		own:  []string{"internal/buf", "internal/invariants"},
		std:  []string{"net", "os/exec"},
	},
	{
		path: "internal/store",
		own:  []string{"internal/buf", "internal/invariants", "internal/kvmsg", "internal/mutate"},
		// On Windows golang.org/x/sys imports package net.
		imports: []string{"net", "syscall"},
		out:     []string{"golang.org/x/sys", "github.com/klauspost/cpuid/v2"},
	},
	{
		path: "internal/command",
		own:  []string{"internal/buf", "internal/closed", "internal/fifo", "internal/hosts", "internal/invariants", "internal/ipcpath", "internal/list", "internal/lograte", "internal/option", "internal/peerlog", "internal/version", "internal/visible", "internal/text", "internal/wake", "zmtp", "sockets"},
		std:  []string{"net/http"},
		out: []string{
			"golang.org/x/sys", "golang.org/x/term", "golang.org/x/crypto", "github.com/klauspost/cpuid/v2", "github.com/google/uuid",
			"github.com/spf13/cobra", "github.com/spf13/pflag", "github.com/inconshreveable/mousetrap",
		},
	},
	{
		path: "internal/queue",
		own:  []string{"internal/buf", "internal/closed", "internal/fifo", "internal/invariants", "internal/list", "internal/wake", "zmtp"},
		std:  []string{"net/http", "os/exec"},
		out:  []string{"golang.org/x/sys", "golang.org/x/crypto"}, // zmtp's
	},
	{
		path: "internal/bounds",
		own:  []string{"internal/buf", "internal/closed", "internal/fifo", "internal/invariants", "internal/ipcpath", "internal/link", "internal/list", "internal/queue", "internal/wake", "zmtp"},
		std:  []string{"net/http", "os/exec"},
		out:  []string{"golang.org/x/sys", "golang.org/x/crypto"}, // zmtp's
	},
	{
		path: "internal/connection",
		own:  []string{"internal/buf", "internal/closed", "internal/fifo", "internal/invariants", "internal/ipcpath", "internal/link", "internal/list", "internal/queue", "internal/wake", "zmtp"},
		std:  []string{"net/http", "os/exec"},
		out:  []string{"golang.org/x/sys", "golang.org/x/crypto"}, // zmtp's
	},
	{
		path: "internal/engine",
		own:  []string{"internal/bounds", "internal/buf", "internal/closed", "internal/connection", "internal/fifo", "internal/invariants", "internal/ipcpath", "internal/link", "internal/list", "internal/queue", "internal/wake", "zmtp"},
		std:  []string{"net/http", "os/exec"},
		out:  []string{"golang.org/x/sys", "golang.org/x/crypto"}, // zmtp's
	},
	{
		path: "internal/route",
		own:  []string{"internal/bounds", "internal/buf", "internal/closed", "internal/connection", "internal/engine", "internal/fifo", "internal/invariants", "internal/ipcpath", "internal/link", "internal/list", "internal/queue", "internal/wake", "zmtp"},
		std:  []string{"net/http", "os/exec"},
		out:  []string{"golang.org/x/sys", "golang.org/x/crypto"}, // zmtp's
	},
	{
		path: "internal/subscriber",
		own:  []string{"internal/bounds", "internal/buf", "internal/closed", "internal/connection", "internal/engine", "internal/fanout", "internal/fifo", "internal/invariants", "internal/ipcpath", "internal/link", "internal/list", "internal/queue", "internal/topic", "internal/wake", "zmtp"},
		std:  []string{"net/http", "os/exec"},
		out:  []string{"golang.org/x/sys", "golang.org/x/crypto"}, // zmtp's
	},
	{
		path: "internal/fanout",
		own:  []string{"internal/buf", "internal/closed", "internal/fifo", "internal/invariants", "internal/list", "internal/queue", "internal/topic", "internal/wake", "zmtp"},
		std:  []string{"net/http", "os/exec"},
		out:  []string{"golang.org/x/sys", "golang.org/x/crypto"}, // zmtp's
	},
	{
		path: "internal/peerlog",
		own:  []string{"internal/buf", "internal/closed", "internal/fifo", "internal/hosts", "internal/invariants", "internal/ipcpath", "internal/list", "internal/lograte", "internal/option", "internal/text", "internal/wake", "zmtp", "sockets"},
		std:  []string{"net/http"},
		out:  []string{"golang.org/x/sys", "golang.org/x/crypto", "github.com/klauspost/cpuid/v2", "github.com/google/uuid"},
	},
	{
		path: "internal/timer",
		own:  []string{"internal/buf", "internal/invariants", "internal/kvmsg"},
		std:  []string{"net", "os/exec"},
	},
	{
		path: "chp/internal/ledger",
		own:  []string{"internal/fifo", "internal/buf", "internal/invariants", "internal/kvmsg", "internal/mutate", "zmtp"},
		std:  []string{"net/http", "os/exec"},
		out:  []string{"golang.org/x/sys", "golang.org/x/crypto"}, // zmtp's
	},
	{
		path: "chp/internal/history",
		own:  []string{"internal/fifo", "internal/buf", "internal/invariants", "internal/kvmsg"},
		std:  []string{"net", "os/exec"},
	},
	{
		path: "chp/internal/txn",
		own:  []string{"internal/buf", "internal/invariants", "internal/kvmsg", "zmtp"},
		std:  []string{"net/http", "os/exec"},
		out:  []string{"golang.org/x/sys", "golang.org/x/crypto"}, // zmtp's
	},
	{
		path: "chp/internal/state",
		own:  []string{"internal/fifo", "internal/buf", "internal/invariants", "internal/kvmsg", "internal/mutate", "internal/store", "internal/timer", "chp/internal/history", "chp/internal/ledger", "chp/internal/txn", "zmtp"},
		std:  []string{"net/http", "os/exec"},
		out:  []string{"golang.org/x/sys", "golang.org/x/crypto", "github.com/klauspost/cpuid/v2"}, // zmtp's and the store's
	},
	{
		path: "chp/internal/ports",
		own:  []string{"internal/buf", "internal/closed", "internal/invariants", "internal/ipcpath", "internal/link", "internal/wake"},
		std:  []string{"crypto", "net/http", "os/exec"},
		out:  []string{"golang.org/x/sys"},
	},
	{
		path: "chp/internal/subtree",
		own:  []string{"internal/buf", "internal/invariants", "internal/kvmsg"},
		std:  []string{"net", "os/exec"},
	},
	{
		path: "chp/internal/follow",
		own: []string{
			"internal/backoff", "internal/fifo", "internal/buf", "internal/closed", "internal/hooks", "internal/invariants", "internal/ipcpath", "internal/kvmsg", "internal/link", "internal/lograte", "internal/mutate", "internal/store", "internal/timer", "internal/wake",
			"chp/internal/history", "chp/internal/hot", "chp/internal/ledger", "chp/internal/live", "chp/internal/state", "chp/internal/txn", "chp/internal/submit", "chp/internal/subtree", "chp/internal/watch", "chp/internal/wire", "zmtp", "sockets",
		},
		std: []string{"net/http"},
		out: []string{"golang.org/x/sys", "golang.org/x/crypto", "github.com/klauspost/cpuid/v2", "github.com/google/uuid"}, // the sockets'
	},
	{
		path: "chp/internal/submit",
		own:  []string{"internal/fifo", "internal/buf", "internal/closed", "internal/invariants", "internal/kvmsg", "internal/mutate", "internal/wake", "chp/internal/ledger", "chp/internal/subtree", "chp/internal/txn", "zmtp"},
		std:  []string{"net/http", "os/exec"},
		out:  []string{"golang.org/x/sys", "golang.org/x/crypto"}, // zmtp's
	},
	{
		path: "chp/internal/watch",
		own:  []string{"internal/buf", "internal/closed", "internal/invariants", "internal/kvmsg", "internal/mutate", "internal/store", "internal/timer", "internal/wake", "chp/internal/subtree"},
		std:  []string{"net/http", "os/exec"},
		out:  []string{"golang.org/x/sys", "github.com/klauspost/cpuid/v2"}, // the store's
	},
	{
		path: "chp/internal/live",
		own:  []string{"internal/buf", "internal/closed", "internal/invariants", "internal/kvmsg", "internal/mutate", "internal/store", "internal/timer", "internal/wake", "chp/internal/history", "chp/internal/ledger", "chp/internal/state", "chp/internal/txn", "chp/internal/subtree", "chp/internal/watch", "zmtp"},
		std:  []string{"net/http", "os/exec"},
		out:  []string{"golang.org/x/sys", "golang.org/x/crypto", "github.com/klauspost/cpuid/v2"}, // the state's
	},
	{
		path: "chp/internal/wire",
		own:  []string{"chp/internal/subtree", "internal/fifo", "internal/buf", "internal/invariants", "internal/kvmsg", "zmtp", "sockets"},
		std:  []string{"net/http"},
		out:  []string{"golang.org/x/sys", "golang.org/x/crypto", "github.com/klauspost/cpuid/v2", "github.com/google/uuid"}, // the sockets'
	},
	{
		path: "chp/internal/retain",
		own:  []string{"internal/buf", "internal/fifo", "internal/invariants", "internal/kvmsg", "internal/mutate", "internal/store", "internal/timer"},
		std:  []string{"net/http", "os/exec"},
		out:  []string{"golang.org/x/sys", "golang.org/x/crypto", "github.com/klauspost/cpuid/v2"}, // the store's
	},
	{
		path: "chp/internal/confirm",
		own:  []string{"internal", "chp/internal/subtree", "chp/internal/wire", "zmtp", "sockets"},
		std:  []string{"net/http"},
		out:  []string{"golang.org/x/sys", "golang.org/x/crypto", "github.com/klauspost/cpuid/v2", "github.com/google/uuid"}, // the sockets'
	},
	{
		path: "chp/internal/journal",
		own:  []string{"internal/buf", "internal/invariants", "internal/kvmsg", "internal/mutate", "internal/store", "internal/timer", "chp/internal/history", "chp/internal/ledger", "chp/internal/state", "chp/internal/txn", "zmtp"},
		std:  []string{"net/http", "os/exec"},
		out:  []string{"golang.org/x/sys", "golang.org/x/crypto", "github.com/klauspost/cpuid/v2"}, // the state's
	},
	{
		path: "chp/internal/journal/pair",
		own:  []string{"internal/fifo", "internal/buf", "internal/invariants", "internal/kvmsg", "internal/mutate", "internal/store", "internal/timer", "chp/internal/journal", "chp/internal/history", "chp/internal/ledger", "chp/internal/state", "chp/internal/txn", "zmtp"},
		std:  []string{"net/http", "os/exec"},
		out:  []string{"golang.org/x/sys", "golang.org/x/crypto", "github.com/klauspost/cpuid/v2"}, // the state's
	},
	{
		path: "chp/internal/journal/disk",
		own:  []string{"chp/internal/retain", "internal/fifo", "internal/buf", "internal/invariants", "internal/kvmsg", "internal/mutate", "internal/store", "internal/timer", "chp/commit", "chp/internal/journal", "chp/internal/history", "chp/internal/ledger", "chp/internal/state", "chp/internal/txn", "zmtp"},
		std:  []string{"net/http", "os/exec"},
		out:  []string{"golang.org/x/sys", "golang.org/x/crypto", "github.com/klauspost/cpuid/v2"}, // the state's
	},
	{
		path: "chp/internal/journal/raft",
		// No library for it: the program has that.
		own: []string{"chp/internal/journal/disk", "chp/internal/retain", "internal/fifo", "internal/buf", "internal/invariants", "internal/kvmsg", "internal/mutate", "internal/store", "internal/timer", "chp/commit", "chp/internal/journal", "chp/internal/history", "chp/internal/ledger", "chp/internal/state", "chp/internal/txn", "zmtp"},
		std: []string{"net/http", "os/exec"},
		out: []string{"golang.org/x/sys", "golang.org/x/crypto", "github.com/klauspost/cpuid/v2"}, // the state's
	},
	{
		path: "chp/durable/internal/file",
		own:  []string{"chp/commit"},
		out:  []string{"go.etcd.io/etcd/client/pkg/v3", "go.uber.org/multierr", "go.uber.org/zap", "golang.org/x/sys"}, // etcd's
	},
	{
		path: "chp/durable/internal/format",
		own:  []string{"chp/commit", "chp/durable/internal/file"},
		out:  []string{"go.etcd.io/etcd/client/pkg/v3", "go.uber.org/multierr", "go.uber.org/zap", "golang.org/x/sys"}, // those of file
	},
	{
		path: "chp/durable/internal/segment",
		own:  []string{"chp/commit", "chp/durable/internal/file", "chp/durable/internal/format"},
		out:  []string{"go.etcd.io/etcd/client/pkg/v3", "go.uber.org/multierr", "go.uber.org/zap", "golang.org/x/sys"}, // those of file
	},
	{
		path: "chp/internal/order",
		own:  []string{"chp/internal/retain", "internal/fifo", "internal/buf", "internal/invariants", "internal/kvmsg", "internal/mutate", "internal/store", "internal/timer", "internal/wake", "chp/internal/journal", "chp/internal/history", "chp/internal/hot", "chp/internal/ledger", "chp/internal/live", "chp/internal/state", "chp/internal/txn", "chp/internal/subtree", "chp/internal/watch", "chp/internal/wire", "zmtp", "sockets"},
		std:  []string{"net/http"},
		out:  []string{"golang.org/x/sys", "golang.org/x/crypto", "github.com/klauspost/cpuid/v2", "github.com/google/uuid"}, // the sockets'
	},
	{
		path: "chp/internal/collect",
		own:  []string{"chp/internal/retain", "internal/fifo", "internal/buf", "internal/invariants", "internal/kvmsg", "internal/lograte", "internal/mutate", "internal/peerlog", "internal/store", "internal/timer", "internal/wake", "chp/internal/journal", "chp/internal/history", "chp/internal/hot", "chp/internal/ledger", "chp/internal/live", "chp/internal/order", "chp/internal/state", "chp/internal/txn", "chp/internal/subtree", "chp/internal/watch", "chp/internal/wire", "zmtp", "sockets", "chp/internal/rights"},
		std:  []string{"net/http"},
		out:  []string{"golang.org/x/sys", "golang.org/x/crypto", "github.com/klauspost/cpuid/v2", "github.com/google/uuid"}, // the sockets'
	},
	{
		path: "chp/internal/member",
		own:  []string{"chp/internal/retain", "internal/fifo", "internal", "chp/commit", "chp/internal/journal", "chp/internal/history", "chp/internal/hot", "chp/internal/ledger", "chp/internal/live", "chp/internal/order", "chp/internal/snapshot", "chp/internal/state", "chp/internal/txn", "chp/internal/subtree", "chp/internal/watch", "chp/internal/wire", "zmtp", "sockets"},
		std:  []string{"net/http"},
		out:  []string{"golang.org/x/sys", "golang.org/x/crypto", "github.com/klauspost/cpuid/v2", "github.com/google/uuid"}, // the sockets'
	},
	{
		path: "chp/internal/partner",
		own:  []string{"chp/internal/retain", "internal/fifo", "internal", "chp/commit", "chp/internal/journal", "chp/internal/history", "chp/internal/hot", "chp/internal/ledger", "chp/internal/live", "chp/internal/order", "chp/internal/ports", "chp/internal/snapshot", "chp/internal/state", "chp/internal/txn", "chp/internal/subtree", "chp/internal/watch", "chp/internal/wire", "patterns/binarystar", "patterns/internal/subscribe", "zmtp", "sockets"},
		std:  []string{"net/http"},
		out:  []string{"golang.org/x/sys", "golang.org/x/crypto", "github.com/klauspost/cpuid/v2", "github.com/google/uuid"}, // the sockets'
	},
	{
		path: "chp/internal/snapshot",
		own:  []string{"chp/internal/retain", "internal/fifo", "internal/buf", "internal/invariants", "internal/kvmsg", "internal/mutate", "internal/store", "internal/timer", "internal/wake", "chp/internal/history", "chp/internal/hot", "chp/internal/ledger", "chp/internal/live", "chp/internal/state", "chp/internal/txn", "chp/internal/subtree", "chp/internal/watch", "chp/internal/wire", "zmtp", "sockets"},
		std:  []string{"net/http"},
		out:  []string{"golang.org/x/sys", "golang.org/x/crypto", "github.com/klauspost/cpuid/v2", "github.com/google/uuid"}, // the sockets'
	},
	{
		path: "chp/cluster",
		// Nothing of the server: the door is package chp/commit.
		own: []string{"chp/commit", "chp/durable", "zmtp", "sockets"},
		out: []string{"go.etcd.io", "go.uber.org", "go.yaml.in", "github.com", "golang.org/x", "google.golang.org"}, // what chp/durable depends on
	},
	{
		path: "chp/commit",
		std:  []string{"net"},
	},
	{
		path: "patterns/lastvalue",
		own:  []string{"zmtp", "sockets"},
		std:  []string{"net/http"},
		out:  []string{"golang.org/x/sys", "golang.org/x/crypto", "github.com/klauspost/cpuid/v2", "github.com/google/uuid", "github.com/google/btree"},
	},
	{
		path: "patterns/espresso",
		own:  []string{"zmtp", "sockets"},
		std:  []string{"net/http"},
		out:  []string{"golang.org/x/sys", "golang.org/x/crypto", "github.com/klauspost/cpuid/v2", "github.com/google/uuid"},
	},
	{
		path: "patterns/freelance",
		own:  []string{"zmtp", "sockets"},
		std:  []string{"net/http", "os/exec"},
		out:  []string{"golang.org/x/sys", "golang.org/x/crypto", "github.com/klauspost/cpuid/v2", "github.com/google/uuid"},
	},
	{
		path: "patterns/snail",
		own:  []string{"zmtp", "sockets", "patterns/internal/subscribe"},
		std:  []string{"net/http"},
		out:  []string{"golang.org/x/sys", "golang.org/x/crypto", "github.com/klauspost/cpuid/v2", "github.com/google/uuid"},
	},
	{
		path: "patterns/binarystar",
		own:  []string{"zmtp", "sockets", "patterns/internal/subscribe"},
		std:  []string{"net/http"},
		out:  []string{"golang.org/x/sys", "golang.org/x/crypto", "github.com/klauspost/cpuid/v2", "github.com/google/uuid"},
	},
	{
		path: "patterns/blackbox",
		own:  []string{"zmtp", "sockets", "patterns/internal/subscribe"},
		std:  []string{"net/http"},
		out:  []string{"golang.org/x/sys", "golang.org/x/crypto", "github.com/klauspost/cpuid/v2", "github.com/google/uuid"},
	},
	{
		path: "patterns/majordomo",
		own:  []string{"zmtp", "sockets"},
		std:  []string{"net/http"},
		out:  []string{"golang.org/x/sys", "golang.org/x/crypto", "github.com/klauspost/cpuid/v2", "github.com/google/uuid"},
	},
	{
		path: "patterns/titanic",
		own:  []string{"zmtp", "sockets", "patterns/majordomo"},
		std:  []string{"net/http"},
		out:  []string{"golang.org/x/sys", "golang.org/x/crypto", "github.com/klauspost/cpuid/v2", "github.com/google/btree", "github.com/google/uuid", "go.etcd.io/bbolt"},
	},
}

// forTests lists the packages that only tests may use.
var forTests = []string{"testing", module + "/internal/chptest", module + "/internal/commandtest", module + "/internal/interop", module + "/internal/loopback", module + "/internal/sockettest", module + "/internal/testenv", module + "/internal/tmpfs", "go.uber.org/goleak", "github.com/anishathalye/porcupine"}

type pkg struct {
	ImportPath string
	Imports    []string
	Standard   bool
	Module     *struct{ Path string }
	CgoFiles   []string
}

// list returns the output of go list -deps for one operating system.
func list(t *testing.T, system string, paths ...string) []pkg {
	t.Helper()
	args := []string{"list", "-deps", "-json=ImportPath,Imports,Standard,Module,CgoFiles"}
	for _, path := range paths {
		args = append(args, "./"+path)
	}
	cmd := exec.Command("go", args...)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "GOOS="+system)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list %s for %s: %v\n%s", strings.Join(paths, " "), system, err, stderr.Bytes())
	}
	var all []pkg
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		err := d.Decode(&p)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
}

func among(path string, prefixes []string) bool {
	for _, p := range prefixes {
		if path == p || strings.HasPrefix(path, p+"/") {
			return true
		}
	}
	return false
}

func TestDirection(t *testing.T) {
	t.Parallel()
	watch(t)
	for _, r := range rules {
		for _, system := range []string{"linux", "darwin", "windows"} {
			t.Run(r.path+"/"+system, func(t *testing.T) {
				t.Parallel()
				self := module + "/" + r.path
				own := []string{self}
				if !strings.HasPrefix(r.path, "internal/") {
					own = append(own, module+"/internal")
				}
				if slices.Contains(r.own, "sockets") {
					own = append(own, append(rooms, module+"/internal/hooks")...)
				}
				for _, p := range r.own {
					own = append(own, module+"/"+p)
				}
				for _, p := range list(t, system, r.path) {
					path := p.ImportPath
					switch {
					case path == self:
						for _, i := range p.Imports {
							if among(i, r.imports) {
								t.Errorf("%s imports %s", self, i)
							}
						}
					case among(path, forTests):
						t.Errorf("%s depends on %s, which is for tests", self, path)
					case p.Standard:
						if among(path, r.std) {
							t.Errorf("%s depends on %s", self, path)
						}
					case among(path, []string{module}):
						if !among(path, own) {
							t.Errorf("%s depends on %s", self, path)
						}
					case p.Module == nil || !among(p.Module.Path, r.out):
						t.Errorf("%s depends on %s from outside", self, path)
					}
					if len(p.CgoFiles) > 0 && !p.Standard {
						t.Errorf("%s depends on %s, which needs cgo", self, path)
					}
				}
			})
		}
	}
}

// rooms lists the internal packages of package sockets. No other package imports them,
// except that the packages above it parse endpoints as it does and dial like it, and that
// internal/hooks is their door to what programs cannot do,
// and they do not import each other, except for those that the rules list.
var rooms = []string{module + "/internal/bounds", module + "/internal/connection", module + "/internal/engine", module + "/internal/fanout", module + "/internal/link", module + "/internal/queue", module + "/internal/route", module + "/internal/subscriber", module + "/internal/topic"}

// linked lists the libraries that use the syntax of endpoints.
var linked = []string{module + "/chp", module + "/chp/internal/ports", module + "/chp/internal/follow", module + "/patterns/freelance", module + "/internal/clusternode", module + "/internal/command", module + "/test/libzmq"}

// TestRooms checks that only package sockets imports its internal packages.
func TestRooms(t *testing.T) {
	t.Parallel()
	watch(t)
	cmd := exec.Command("go", "list", "-json=ImportPath,Imports,TestImports,XTestImports", "./...")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	used := map[string]bool{}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct {
			ImportPath                         string
			Imports, TestImports, XTestImports []string
		}
		err := d.Decode(&p)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range slices.Concat(p.Imports, p.TestImports, p.XTestImports) {
			switch {
			case !slices.Contains(rooms, i):
			case i == module+"/internal/link" && (slices.Contains(linked, p.ImportPath) || strings.HasPrefix(p.ImportPath, module+"/cmd/")):
			case p.ImportPath == module+"/internal/hooks", p.ImportPath == module+"/internal/sockettest":
			case slices.Contains(append(rooms, module+"/sockets"), p.ImportPath):
				used[i] = true
			default:
				t.Errorf("%s imports %s", p.ImportPath, i)
			}
		}
	}
	for _, room := range rooms {
		if !used[room] {
			t.Errorf("package sockets does not import %s", room)
		}
	}
}

// onDisk lists the packages that only packages with storage on disk, and the commands,
// may depend on.
var onDisk = []string{module + "/chp/durable", "go.etcd.io", "go.uber.org/zap", "github.com/prometheus"}

// TestDiskApart checks that a program gets the libraries of the log on disk only if it
// imports chp/durable.
func TestDiskApart(t *testing.T) {
	t.Parallel()
	watch(t)
	allowed := []string{module + "/chp/durable", module + "/chp/admin", module + "/chp/cluster", module + "/sockets/metrics", module + "/patterns/titanic", module + "/cmd", module + "/internal/bench", module + "/internal/clusternode"}
	cmd := exec.Command("go", "list", "-json=ImportPath,Deps", "./...")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct {
			ImportPath string
			Deps       []string
		}
		err := d.Decode(&p)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, dep := range p.Deps {
			if !among(dep, onDisk) {
				continue
			}
			found = true
			if !among(p.ImportPath, allowed) {
				t.Errorf("%s depends on %s", p.ImportPath, dep)
				break
			}
		}
	}
	if !found {
		t.Error("nobody depends on what is to be kept apart: the list is wrong")
	}
}

// TestInternal checks that no internal package depends on a public one, except for
// internal/command with the packages below it, for internal/peerlog, which logs the events
// of sockets, for the rooms of sockets, their door and their tests, which handle the frames of
// zmtp, for internal/bench, which measures public packages and is used by commands only, for
// internal/clusternode, which joins two of them, and for internal/kvjson, which has entries and
// events of chp in JSON.
func TestInternal(t *testing.T) {
	t.Parallel()
	watch(t)
	cmd := exec.Command("go", "list", "./internal/...")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var paths []string
	for path := range strings.FieldsSeq(string(out)) {
		if !among(path, append(rooms, module+"/internal/hooks", module+"/internal/command", module+"/internal/peerlog", module+"/internal/sockettest", module+"/internal/bench", module+"/internal/clusternode", module+"/internal/kvjson")) {
			paths = append(paths, strings.TrimPrefix(path, module+"/"))
		}
	}
	for _, p := range list(t, "linux", paths...) {
		if among(p.ImportPath, []string{module}) && !among(p.ImportPath, []string{module + "/internal"}) {
			t.Errorf("an internal package depends on %s", p.ImportPath)
		}
	}
}

// TestPassive checks that zmtp starts no goroutine.
func TestPassive(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join(root, "zmtp", "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no files of zmtp: %v", err)
	}
	set := token.NewFileSet()
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(set, name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			starts := false
			switch n := n.(type) {
			case *ast.GoStmt:
				starts = true
			case *ast.SelectorExpr: // of a sync.WaitGroup, of package time
				starts = n.Sel.Name == "Go" || n.Sel.Name == "AfterFunc"
			}
			if starts {
				t.Errorf("%s starts a goroutine", set.Position(n.Pos()))
			}
			return true
		})
	}
}

// watch reads the module's source files, so that a change of one of them invalidates
// the cached result of the test. The files that go list reads do not, because it is
// another process.
func watch(t *testing.T) {
	t.Helper()
	for _, dir := range []string{"zmtp", "sockets", "chp", "patterns", "internal"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || filepath.Ext(path) != ".go" {
				return err
			}
			_, err = os.ReadFile(path)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"go.mod", "go.sum"} {
		if _, err := os.ReadFile(filepath.Join(root, name)); err != nil {
			t.Fatal(err)
		}
	}
}
