package httpkv

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// The description has the paths, methods, parameters and problems of the handlers, and no others.
func TestDescription(t *testing.T) {
	t.Parallel()
	type parameter struct {
		Ref  string `yaml:"$ref"`
		Name string
		In   string
	}
	type operation struct {
		Parameters  []parameter
		RequestBody struct{ Content map[string]any }
		Responses   map[string]any
	}
	var doc struct {
		OpenAPI    string
		Paths      map[string]map[string]yaml.Node
		Components struct {
			Parameters map[string]parameter
			Schemas    struct {
				Problem struct {
					Properties struct {
						Type struct{ Enum []string }
					}
				} `yaml:"Problem"`
			}
		}
	}
	if err := yaml.Unmarshal(description, &doc); err != nil {
		t.Fatal(err)
	}
	if doc.OpenAPI != "3.1.0" {
		t.Error(doc.OpenAPI)
	}
	decode := func(n yaml.Node, into any) {
		if err := n.Decode(into); err != nil {
			t.Error(err)
		}
	}
	named := func(p parameter) parameter {
		if name, ok := strings.CutPrefix(p.Ref, "#/components/parameters/"); ok {
			return doc.Components.Parameters[name]
		}
		return p
	}
	described := map[string][]string{} // queries and methods by path
	for path, item := range doc.Paths {
		for method, node := range item {
			if method == "parameters" {
				var all []parameter
				decode(node, &all)
				if len(all) != 1 || named(all[0]).In != "path" || !strings.Contains(path, "{"+named(all[0]).Name+"}") {
					t.Errorf("%s has the parameters %v", path, all)
				}
				continue
			}
			var o operation
			decode(node, &o)
			method = strings.ToUpper(method)
			described[path] = append(described[path], method)
			for _, p := range o.Parameters {
				p = named(p)
				if p.Name == "" || !slices.Contains([]string{"query", "header"}, p.In) {
					t.Errorf("%s %s has the parameter %v", method, path, p)
				}
				if p.In == "query" && !slices.Contains(described[path], p.Name) {
					described[path] = append(described[path], p.Name)
				}
			}
			if o.Responses["default"] == nil && path != "/v1/openapi.yaml" {
				t.Errorf("%s %s has no default answer", method, path)
			}
		}
	}
	has := map[string][]string{"/v1/openapi.yaml": {"GET"}}
	for _, r := range resources {
		path := r.path
		switch r.rest {
		case "key":
			path += map[bool]string{true: "{PREFIX}", false: "{KEY}"}[r.path == "/v1/watch"]
		case "id":
			path += "{ID}"
		}
		has[path] = append(slices.Collect(maps.Keys(r.verbs)), r.params...)
	}
	for path := range has {
		slices.Sort(has[path])
		slices.Sort(described[path])
		if !slices.Equal(has[path], described[path]) {
			t.Errorf("%s has %q, and is described with %q", path, has[path], described[path])
		}
	}
	if len(described) != len(has) {
		t.Errorf("described are %d paths, want %d", len(described), len(has))
	}
	var kinds []string
	for kind := range titles {
		kinds = append(kinds, typePrefix+kind)
	}
	slices.Sort(kinds)
	if listed := doc.Components.Schemas.Problem.Properties.Type.Enum; !slices.Equal(kinds, listed) {
		t.Errorf("the problems are %q, and described are %q", kinds, listed)
	}
	for _, ref := range regexp.MustCompile(`\$ref: "#/([^"]*)"`).FindAllStringSubmatch(string(description), -1) {
		var at any
		if err := yaml.Unmarshal(description, &at); err != nil {
			t.Fatal(err)
		}
		for name := range strings.SplitSeq(ref[1], "/") {
			m, _ := at.(map[string]any)
			if at = m[name]; at == nil {
				t.Errorf("there is no %s", ref[1])
			}
		}
	}

	d := open(t, Options{})
	a := d.expect(200, string(description), "GET", "/v1/openapi.yaml", "")
	if a.header.Get("Content-Type") != "application/yaml" {
		t.Errorf("%v", a.header)
	}
	for _, r := range resources {
		path := r.path
		if r.rest == "id" {
			path += strings.Repeat("0", 32)
		}
		for _, method := range []string{"GET", "HEAD", "PUT", "POST", "DELETE", "PATCH", "TRACE"} {
			if method == "GET" && r.path == "/v1/watch" {
				continue // it has no end
			}
			a := d.ask(method, path, "")
			if (a.status == 405) == (r.verbs[method] != nil) {
				t.Errorf("%s %s: %d", method, path, a.status)
			}
			if a.status == 405 && a.header.Get("Allow") == "" {
				t.Errorf("%s %s: %v", method, path, a.header)
			}
		}
	}
}
