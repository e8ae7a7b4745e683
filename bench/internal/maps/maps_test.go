package maps

import "testing"

// TestKinds: each kind works under the benchmarks' operations, and Check and Run notice a
// wrong result.
func TestKinds(t *testing.T) {
	t.Parallel()
	for _, kind := range Kinds {
		t.Run(kind.Name, func(t *testing.T) {
			t.Parallel()
			const n = 1000
			m, load := kind.New(), NewLoad(n)
			Fill(m, n)
			for _, op := range Ops {
				for _, goroutines := range []int{1, 3} {
					if err := load.Run(m, op, 5*n+1, goroutines); err != nil {
						t.Error(op, goroutines, err)
					}
				}
			}
			if err := Check(m, n); err != nil {
				t.Error(err)
			}
			m.Set(key(7), make([]byte, valueSize))
			if Check(m, n) == nil || load.Run(m, "get", n, 1) == nil {
				t.Error("a wrong value is not noticed")
			}
		})
	}
}
