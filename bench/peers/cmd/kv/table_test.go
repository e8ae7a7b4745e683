package main

import (
	"fmt"
	"testing"
)

func TestTable(t *testing.T) {
	t.Parallel()
	table, want := newTable(), map[string]string{}
	for i := range 100_000 {
		key, value := fmt.Sprint(i%60_000), fmt.Sprint(i%7, i/50_000)
		if i%3 == 0 {
			value += " longer"
		}
		table.put([]byte(key), []byte(value))
		want[key] = value
	}
	for key, value := range want {
		if v, ok := table.get(key); !ok || string(v) != value {
			t.Fatalf("%s is %q, %v, want %q", key, v, ok, value)
		}
	}
	if _, ok := table.get("none"); ok || table.used != len(want) {
		t.Errorf("%d records, want %d", table.used, len(want))
	}
}
