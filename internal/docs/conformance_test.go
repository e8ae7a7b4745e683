package docs

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// libzmqTests lists the names of libzmq's tests without their common parts.
const libzmqTests = `
mock_pub_sub heartbeats stream_timeout xpub_topic metadata app_meta
bind_fuzzer connect_fuzzer bind_null_fuzzer connect_null_fuzzer bind_curve_fuzzer connect_curve_fuzzer

spec_req spec_rep spec_dealer spec_router reqrep_tcp reqrep_ipc reqrep_inproc reqrep_device req_correlate req_relaxed
invalid_rep router_mandatory router_mandatory_hwm router_handover router_notify connect_rid probe_router issue_566

sub_forward xpub_verbose xsub_verbose xpub_manual xpub_manual_last_value xpub_nodrop xpub_welcome_msg
pub_invert_matching pubsub_topics_count hwm_pubsub disconnect_inproc

spec_pushpull pair_inproc pair_tcp pair_ipc conflate

hwm sockopt_hwm immediate timeo many_sockets

reconnect_ivl reconnect_options bind_after_connect_tcp rebind_ipc inproc_connect term_endpoint last_endpoint
unbind_wildcard ipc_wildcard abstract_ipc connect_resolve bind_src_address ctx_destroy ctx_options shutdown_stress
filter_ipc tcp_accept_filter monitor hello_msg disconnect_msg hiccup_msg use_fd srcfd

security_null security_plain security_curve security_zap security_no_zap_handler base85

stream stream_empty stream_disconnect stream_exceeds_buffer

proxy proxy_single_socket proxy_steerable proxy_terminate proxy_hwm

client_server radio_dish scatter_gather peer peer_disconnect channel thread_safe

socks
`

// TestConformance: CONFORMANCE.md has a row for each of libzmq's tests, with tests that
// exist or a reason, says in what it differs, and its totals are correct.
func TestConformance(t *testing.T) {
	t.Parallel()
	text := page(t, "CONFORMANCE.md")
	exists := tests(t)
	missing := strings.Fields(libzmqTests)
	total := map[string]int{}
	for _, row := range rows(text) {
		if len(row) != 4 {
			t.Errorf("a row of %d cells: %q", len(row), row)
			continue
		}
		name, state, remark := strings.Trim(row[1], "`"), row[2], row[3]
		total[state]++
		if i := slices.Index(missing, name); i >= 0 {
			missing = slices.Delete(missing, i, i+1)
		}
		named := 0
		for _, s := range spans(remark) {
			if !strings.HasPrefix(s, "Test") && !strings.HasPrefix(s, "Fuzz") {
				continue
			}
			named++
			if !exists[s] {
				t.Errorf("%s: there is no %s", name, s)
			}
		}
		switch state {
		case "passes":
			if named == 0 {
				t.Errorf("%s passes without a test", name)
			}
		case "differs":
			if _, how, _ := strings.Cut(remark, "; "); how == "" || named == 0 {
				t.Errorf("%s differs without a test, or without saying in what", name)
			}
		case "does not apply", "not done":
			if remark == "" {
				t.Errorf("%s: no reason", name)
			}
		default:
			t.Errorf("%s: state %q", name, state)
		}
	}
	if len(missing) > 0 {
		t.Errorf("no rows for %v", missing)
	}
	passes, differs, not, open := total["passes"], total["differs"], total["does not apply"], total["not done"]
	totals := fmt.Sprintf("Of %d tests or groups of them %d pass, %d differ, %d do not apply, %d are not done.",
		passes+differs+not+open, passes, differs, not, open)
	if !strings.Contains(text, totals) {
		t.Errorf("the totals are: %s", totals)
	}
}

// TestConformanceComplete: every test that is named after one of libzmq's is in a row of
// the table.
func TestConformanceComplete(t *testing.T) {
	t.Parallel()
	named := map[string]bool{}
	for _, row := range rows(page(t, "CONFORMANCE.md")) {
		for _, s := range spans(row[len(row)-1]) {
			named[s] = true
		}
	}
	var missing []string
	for name := range tests(t) {
		if strings.HasPrefix(name, "TestLibzmq_") && !named[name] {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		slices.Sort(missing)
		t.Errorf("no row names %v", missing)
	}
}
