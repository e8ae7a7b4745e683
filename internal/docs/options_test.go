package docs

import (
	"reflect"
	"regexp"
	"strings"
	"testing"

	"clustermap/sockets"
)

// fields returns the names of the exported fields of Options, and those of Security
// with the prefix "Security.".
func fields() map[string]bool {
	all := map[string]bool{}
	add := func(prefix string, of reflect.Type) {
		for _, f := range reflect.VisibleFields(of) {
			if f.IsExported() {
				all[prefix+f.Name] = true
			}
		}
	}
	add("", reflect.TypeFor[sockets.Options]())
	add("Security.", reflect.TypeFor[sockets.Security]())
	return all
}

var word = regexp.MustCompile(`[A-Za-z0-9]+(?:\.[A-Za-z0-9]+)?`)

// numbersHeading begins the part of OPTIONS.md whose tables begin with our names.
const numbersHeading = "\n## Numbers of libzmq\n"

// TestOptions: OPTIONS.md lists every field of Options, and every field that it names
// exists.
func TestOptions(t *testing.T) {
	t.Parallel()
	text := page(t, "OPTIONS.md")
	exists, named := fields(), map[string]bool{}
	for _, w := range word.FindAllString(text, -1) {
		named[w] = true
	}
	for f := range exists {
		if !named[f] {
			t.Errorf("Options.%s is not on the page", f)
		}
	}
	body, ours, found := strings.Cut(text, "\n## Options that libzmq lacks\n")
	if !found {
		t.Fatal("the last heading is missing")
	}
	for _, row := range rows(body) {
		if len(row) != 4 {
			t.Fatalf("a row of %d cells: %q", len(row), row)
		}
		for _, name := range spans(row[1]) {
			if !exists[name] {
				t.Errorf("%s: there is no Options.%s", row[0], name)
			}
		}
	}
	ours, numbers, found := strings.Cut(ours, numbersHeading)
	if !found {
		t.Fatal("the heading of the numbers is missing")
	}
	for _, row := range rows(numbers) {
		for _, name := range spans(row[0]) {
			if !exists[name] {
				t.Errorf("there is no Options.%s", name)
			}
		}
	}
	for _, row := range rows(ours) {
		if name := strings.Trim(row[0], "`"); !exists[name] {
			t.Errorf("there is no Options.%s", name)
		}
	}
}

// TestOptionsOfLibzmq: OPTIONS.md lists the commonly used options of libzmq.
func TestOptionsOfLibzmq(t *testing.T) {
	t.Parallel()
	listed := map[string]bool{}
	text, _, _ := strings.Cut(page(t, "OPTIONS.md"), numbersHeading)
	for _, row := range rows(text) {
		for _, name := range spans(row[0]) {
			if listed[name] {
				t.Errorf("%s is there twice", name)
			}
			listed[name] = true
		}
	}
	for _, name := range strings.Fields(`
		SNDHWM RCVHWM SNDTIMEO RCVTIMEO SNDBUF RCVBUF LINGER IMMEDIATE CONFLATE RECONNECT_IVL RECONNECT_IVL_MAX
		RECONNECT_STOP CONNECT_TIMEOUT HANDSHAKE_IVL HEARTBEAT_IVL HEARTBEAT_TIMEOUT HEARTBEAT_TTL TCP_KEEPALIVE
		TCP_KEEPALIVE_CNT TCP_KEEPALIVE_IDLE TCP_KEEPALIVE_INTVL MAXMSGSIZE BACKLOG TOS IPV6 BINDTODEVICE SOCKS_PROXY
		ROUTING_ID CONNECT_ROUTING_ID PROBE_ROUTER ROUTER_MANDATORY ROUTER_HANDOVER ROUTER_NOTIFY REQ_RELAXED
		REQ_CORRELATE XPUB_VERBOSE XPUB_VERBOSER XPUB_NODROP XPUB_MANUAL XPUB_MANUAL_LAST_VALUE XPUB_WELCOME_MSG
		XSUB_VERBOSE_UNSUBSCRIBE INVERT_MATCHING ONLY_FIRST_SUBSCRIBE HELLO_MSG DISCONNECT_MSG HICCUP_MSG METADATA
		ZAP_DOMAIN ZAP_ENFORCE_DOMAIN PLAIN_SERVER PLAIN_USERNAME PLAIN_PASSWORD CURVE_SERVER CURVE_PUBLICKEY
		CURVE_SECRETKEY CURVE_SERVERKEY SUBSCRIBE UNSUBSCRIBE TYPE EVENTS FD RCVMORE LAST_ENDPOINT MECHANISM
		TOPICS_COUNT IO_THREADS MAX_SOCKETS`) {
		if !listed[name] {
			t.Errorf("%s is missing", name)
		}
	}
}
