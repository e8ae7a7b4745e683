package main

import (
	"os"
	"path/filepath"
	"testing"
)

// The secret of a pair is in a file, long enough, and of a pair without CURVE.
func TestPairSecretFlag(t *testing.T) {
	t.Parallel()
	short := filepath.Join(t.TempDir(), "short")
	if err := os.WriteFile(short, []byte("0123456789abcde\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	key, _ := keygen(t, "server")
	try(t, "serve", "--pair-secret", short).expect(t, exitUsage, "--pair-secret is for a pair")
	try(t, "serve", "--primary", "--pair-secret", short).expect(t, exitUsage, "has 15 characters; it needs 16")
	try(t, "serve", "--primary", "--pair-secret", short+"er").expect(t, exitUsage, "no such file")
	try(t, "serve", "--primary", "--pair-secret", short, "--curve-key", key, "--curve-allow", "any").expect(t, exitUsage, "--pair-secret is not for --curve-key")
}
