package main

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"clustermap/sockets"
	"clustermap/zmtp"
)

// Every device that listens says on standard error who was denied at which endpoint, with
// the key.
func TestDevicesLogWhoWasDenied(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "server.key")
	public, err := zmtp.ParsePublicKey(strings.TrimSpace(zdev.Must(t, "keygen", "--out", file)))
	if err != nil {
		t.Fatal(err)
	}
	const here = "tcp://127.0.0.1:*"
	for name, device := range map[string]struct {
		args  []string
		ports []string // with an endpoint each
	}{
		"cache":           {[]string{"--publisher", here, "--bind", here}, []string{"publisher", "bind"}},
		"proxy":           {[]string{"--kind", "reqrep", "--frontend", here, "--backend", here}, []string{"frontend", "backend"}},
		"tap":             {[]string{"--kind", "pipeline", "--frontend", "bind:" + here, "--backend", "bind:" + here}, []string{"frontend", "backend"}},
		"broker":          {[]string{"--bind", here}, []string{"bind"}},
		"freelance-serve": {[]string{"--bind", here, "--echo"}, []string{"bind"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			known, other := zmtp.GenerateKeyPair(), zmtp.GenerateKeyPair()
			p := zdev.Start(t, append([]string{name, "--curve-key", file, "--curve-allow", known.Public.String()}, device.args...)...)
			for i, at := range p.Ready()[:len(device.ports)] {
				connected(t, sockets.NewDealer, sockets.Options{Linger: sockets.LingerNone, Security: sockets.Security{CurveSecretKey: other.Secret, CurveServerKey: public}}, at)
				p.Await(`level=WARN msg="client denied" port=` + device.ports[i] + ` remote=127\.0\.0\.1:\d+ key="?` + regexp.QuoteMeta(other.Public.String()))
			}
			endsWell(t, p)
		})
	}
}

// Every device that connects says that there is no connection, and when there is one.
func TestDevicesLogThatAnEndpointIsAway(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{
		"cache": {"--bind", "tcp://127.0.0.1:*", "--publisher"},
		"proxy": {"--kind", "pubsub", "--backend", "tcp://127.0.0.1:*", "--frontend"},
		"tap":   {"--backend", "tcp://127.0.0.1:*", "--frontend"},
		"lag":   {"--connect"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// Not TCP: a port that was free may have another user when the publisher begins.
			at := "ipc://" + filepath.Join(t.TempDir(), "publisher")
			connect := "connect:" + at
			if name == "lag" {
				connect = at
			}
			p := zdev.Start(t, append(append([]string{name}, args...), connect)...)
			p.Await(`no connection to ipc://\S+: .*; trying again\n`)
			pub, err := sockets.NewPub(sockets.Options{Linger: sockets.LingerNone})
			if err != nil {
				t.Fatal(err)
			}
			defer pub.Close()
			if err := pub.Bind(t.Context(), at); err != nil {
				t.Fatal(err)
			}
			p.Await(`connected to ipc://\S+\n`)
			endsWell(t, p)
		})
	}
}
