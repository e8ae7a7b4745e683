package chp_test

import (
	"fmt"

	"clustermap/chp"
)

func ExampleMap() {
	m := chp.NewMap(chp.MapOptions{})
	m.Set("/beer/ale", []byte("bitter"))
	m.Set("/beer/stout", []byte("dry"))
	m.Set("/beer/ale", []byte("mild"))

	value, ok := m.Get("/beer/ale")
	fmt.Println(string(value), ok)
	fmt.Println(m.Delete("/beer/stout"), m.Delete("/beer/stout"), m.Len())
	// Output:
	// mild true
	// true false 1
}

// To read without an allocation, keep a buffer and append to it.
func ExampleMap_AppendGet() {
	m := chp.NewMap(chp.MapOptions{})
	m.Set("/pump/1", []byte("open"))
	m.Set("/pump/2", []byte("shut"))

	var buf []byte
	for _, key := range []string{"/pump/1", "/pump/2", "/pump/3"} {
		var ok bool
		buf, ok = m.AppendGet(buf[:0], key)
		fmt.Printf("%s %q %v\n", key, buf, ok)
	}
	// Output:
	// /pump/1 "open" true
	// /pump/2 "shut" true
	// /pump/3 "" false
}

// Range sees each stripe as it was at one moment, and writers do not wait for it.
func ExampleMap_Range() {
	m := chp.NewMap(chp.MapOptions{})
	for i := range 100 {
		m.Set(fmt.Sprint("/key/", i), make([]byte, 10))
	}
	bytes := 0
	m.Range(func(key, value []byte) bool {
		bytes += len(value)
		return true
	})
	fmt.Println(bytes)
	// Output: 1000
}
