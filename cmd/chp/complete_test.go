package main

import (
	"os/exec"
	"strings"
	"testing"
	"time"
)

// completions returns the shell's completions, and cobra's directive.
func completions(t *testing.T, args ...string) (words []string, directive string) {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(must(t, append([]string{"__complete"}, args...)...)), "\n")
	last := len(lines) - 1
	return lines[:last], lines[last]
}

// The shell completes the keys of a running server, part by part.
func TestCompleteKeys(t *testing.T) {
	t.Parallel()
	s := serve(t)
	mustInput(t, `{"key":"/lamp/1","value":"x"}
{"key":"/lamp/2/color","value":"x"}
{"key":"/lamp/2/power","value":"x"}
{"key":"/door","value":"x"}
{"key":"plain","value":"x"}
{"key":"line\nbreak","value":"x"}
`, "load", "--server", s.endpoint)
	for _, c := range []struct{ args, want string }{
		{"get --server E ", "/door /lamp/ plain"},
		{"get --server E /l", "/lamp/"},
		{"get --server E /lamp/", "/lamp/1 /lamp/2/"},
		{"del --server E /lamp/2/", "/lamp/2/color /lamp/2/power"},
		{"ls --server E /lamp/2", "/lamp/2/"},
		{"dump --server E pl", "plain"},
		{"set --server E /do", "/door"},
		{"set --server E /door ", ""},
		{"get --server E /door ", ""},
		{"watch --server E /door /la", "/lamp/"},
		{"get --server E /none/", ""},
		{"get --server nonsense ", ""},
		{"get --server E --server-model 1 ", ""},
		{"get --server-model ", "1 2 3 4 5 6"},
		{"serve --acks ", "1 2"},
		{"watch --on-error ", "continue stop"},
	} {
		words, directive := completions(t, strings.Split(strings.ReplaceAll(c.args, "--server E", "--timeout 2s --server "+s.endpoint), " ")...)
		if got := strings.Join(words, " "); got != c.want {
			t.Errorf("%q completes %q (%s), want %q", c.args, got, directive, c.want)
		}
	}
}

// Without a server there are no completions, soon and without a message.
func TestCompleteKeysWithoutServer(t *testing.T) {
	t.Parallel()
	cmd := program(t, "__complete", "get", "--server", "tcp://127.0.0.1:1", "/")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	begun := time.Now()
	out, err := cmd.Output()
	if err != nil || !strings.HasPrefix(string(out), ":") || time.Since(begun) > time.Minute {
		t.Errorf("%q, %v after %v", out, err, time.Since(begun))
	}
	if text := stderr.String(); strings.Contains(text, "chp:") || strings.Contains(text, "refused") {
		t.Errorf("stderr %q", text)
	}
}

// bash completes keys with the generated script.
func TestCompleteKeysInBash(t *testing.T) {
	t.Parallel()
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skipf("needs bash: %v", err)
	}
	s := serve(t)
	must(t, "set", "/lamp/kitchen", "on", "--server", s.endpoint)
	cmd := program(t)
	script := `PATH=` + cmd.Path[:strings.LastIndexByte(cmd.Path, '/')] + `:$PATH
_get_comp_words_by_ref() { cur=${COMP_WORDS[COMP_CWORD]}; words=("${COMP_WORDS[@]}"); cword=$COMP_CWORD; prev=${COMP_WORDS[COMP_CWORD-1]}; }
source <(chp completion bash)
COMP_WORDS=(chp get --timeout 2s /lamp/k) COMP_CWORD=4 COMP_LINE="chp get --timeout 2s /lamp/k" COMP_POINT=28 COMP_TYPE=9
__start_chp chp /lamp/k get
echo "${COMPREPLY[0]}"`
	run := exec.CommandContext(t.Context(), bash, "-c", script)
	run.Env = append(cmd.Env, serverVariable+"="+s.endpoint)
	out, err := run.Output()
	if err != nil || strings.TrimSpace(string(out)) != "/lamp/kitchen" {
		t.Errorf("%q, %v", out, err)
	}
}
