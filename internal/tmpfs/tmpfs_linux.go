package tmpfs

import (
	"os"
	"syscall"
	"testing"
)

// Mount mounts a tmpfs with the given options, such as "size=1m", and returns its
// directory. It is unmounted when the test ends. Without the permission to mount, the
// test is skipped, or fails if CLUSTERMAP_REQUIRE_INTEROP=1.
func Mount(t testing.TB, options string) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, options); err != nil {
		if os.Getenv("CLUSTERMAP_REQUIRE_INTEROP") == "1" {
			t.Fatalf("cannot mount a tmpfs: %v (not skipped, because CLUSTERMAP_REQUIRE_INTEROP=1)", err)
		}
		t.Skip("cannot mount a tmpfs: ", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// Remount changes the options of a file system mounted by Mount.
func Remount(t testing.TB, dir, options string) {
	t.Helper()
	if err := syscall.Mount("", dir, "", syscall.MS_REMOUNT, options); err != nil {
		t.Fatal(err)
	}
}
