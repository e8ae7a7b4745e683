package packaging

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"clustermap/chp"
	"clustermap/chp/admin"
	"clustermap/sockets"
	"clustermap/sockets/metrics"

	"github.com/prometheus/client_golang/prometheus"
	"go.yaml.in/yaml/v3"
)

// series returns the names of all series of a server with a log.
func series(t *testing.T) []string {
	t.Helper()
	s, err := chp.NewServer(chp.ServerOptions{Host: "127.0.0.1"})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	h, err := admin.NewHandler(admin.Options{})
	if err != nil {
		t.Fatal(err)
	}
	h.Attach(s)
	syncs := admin.NewSyncSeconds()
	h.Registry().MustRegister(syncs)
	families, err := h.Registry().Gather()
	if err != nil {
		t.Fatal(err)
	}
	names := []string{"up"}
	for _, f := range families {
		names = append(names, f.GetName())
	}
	return names
}

var seriesName = regexp.MustCompile(`\b((?:chp|process|go)_[a-z_]+|up)\b`)

// unknown returns the names in an expression that no server has.
func unknown(expression string, names []string) (missing []string) {
	for _, name := range seriesName.FindAllString(expression, -1) {
		if !slices.Contains(names, name) && !slices.Contains(names, strings.TrimSuffix(name, "_bucket")) {
			missing = append(missing, name)
		}
	}
	return missing
}

func TestAlertsAreOnMetricsThatExist(t *testing.T) {
	t.Parallel()
	file := filepath.Join(root, "packaging", "chp.rules.yml")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var rules struct {
		Groups []struct {
			Rules []struct{ Alert, Expr string }
		}
	}
	if err := yaml.Unmarshal(text, &rules); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(root, "docs", "MONITORING.md"))
	if err != nil {
		t.Fatal(err)
	}
	names, n := series(t), 0
	for _, g := range rules.Groups {
		for _, r := range g.Rules {
			n++
			if missing := unknown(r.Expr, names); len(missing) > 0 {
				t.Errorf("%s: no server has %v", r.Alert, missing)
			}
			// Nodes of a cluster have a term, too, and no second server.
			if regexp.MustCompile(`chp_(term|peer)`).MatchString(r.Expr) && !strings.Contains(r.Expr, "chp_cluster_nodes") {
				t.Errorf("%s does not tell the servers of a pair from the nodes of a cluster", r.Alert)
			}
			if !strings.Contains(string(page), "`"+r.Alert+"`") {
				t.Errorf("docs/MONITORING.md does not say what to do after %s", r.Alert)
			}
		}
	}
	if n < 5 {
		t.Errorf("found %d rules", n)
	}
	if promtool, err := exec.LookPath("promtool"); err == nil {
		if out, err := exec.CommandContext(t.Context(), promtool, "check", "rules", file).CombinedOutput(); err != nil {
			t.Errorf("promtool: %v\n%s", err, out)
		}
	}
}

func TestDashboardShowsMetricsThatExist(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(root, "packaging", "chp-dashboard.json"))
	if err != nil {
		t.Fatal(err)
	}
	var board struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(text, &board); err != nil {
		t.Fatal(err)
	}
	names, n := series(t), 0
	for _, p := range board.Panels {
		for _, target := range p.Targets {
			n++
			if missing := unknown(target.Expr, names); len(missing) > 0 || !seriesName.MatchString(target.Expr) {
				t.Errorf("%s: no server has %v of %s", p.Title, missing, target.Expr)
			}
		}
	}
	if n < 10 {
		t.Errorf("found %d expressions", n)
	}
}

// Every metric of a server or a client is on the page, with its help text.
func TestPageListsAllMetrics(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join(root, "docs", "MONITORING.md"))
	if err != nil {
		t.Fatal(err)
	}
	descriptions := make(chan *prometheus.Desc, 100)
	admin.NewServerCollector(nil).Describe(descriptions)
	admin.NewClientCollector(nil).Describe(descriptions)
	admin.NewSyncSeconds().Describe(descriptions)
	if socket, err := sockets.NewPull(sockets.Options{}); err != nil {
		t.Error(err)
	} else {
		defer socket.Close()
		metrics.NewCollector("", socket).Describe(descriptions)
	}
	close(descriptions)
	described := regexp.MustCompile(`fqName: "([^"]+)", help: "([^"]+)"`)
	for d := range descriptions {
		m := described.FindStringSubmatch(d.String())
		if m == nil {
			t.Fatalf("cannot read %s", d)
		}
		if line := "| `" + m[1] + "` | " + m[2]; !strings.Contains(string(page), line) {
			t.Errorf("docs/MONITORING.md lacks the line %s |", line)
		}
	}
}
