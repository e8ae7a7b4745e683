package ipcpath

import (
	"fmt"
	"strings"
	"testing"
)

func TestCheck(t *testing.T) {
	t.Parallel()
	for _, most := range []int{Max, MaxServer} {
		if err := Check(strings.Repeat("x", most), most); err != nil {
			t.Error(err)
		}
		want := fmt.Sprintf("has a path of %d bytes; at most %d are allowed", most+1, most)
		if err := Check(strings.Repeat("x", most+1), most); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
