package kvmsg

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"
)

// The key of a lease is set by a request only, with a time to live that its value has, too; everybody may delete it.
func TestLeaseKeysAreSetByRequestsOnly(t *testing.T) {
	t.Parallel()
	id := LeaseID{0xab, 1}
	key := string(AppendLeaseKey(nil, id))
	lease := string(AppendLease(nil, id))
	for _, test := range []struct {
		name              string
		key, props, value string
		client, request   bool
	}{
		{"a lease", key, "ttl=30\n", "30", false, true},
		{"a lease with a property", key, "ttl=0.5\na=b\n", "0.5", false, true},
		{"no time to live", key, "", "30", false, false},
		{"a property alone", key, "a=b\n", "30", false, false},
		{"another time to live", key, "ttl=31\n", "30", false, false},
		{"no time", key, "ttl=30\n", "x", false, false},
		{"no time at all", key, "ttl=0\n", "0", false, false},
		{"more than ten years", key, "ttl=30\n", "1000000000", false, false},
		{"one of a lease", key, "ttl=30\n" + lease, "30", false, false},
		{"a long value", key, "ttl=30\n", strings.Repeat("0", 1000), false, false},
		{"capitals", strings.ToUpper(key), "ttl=30\n", "30", true, true},
		{"capital digits", LeasePrefix + strings.ToUpper(key[len(LeasePrefix):]), "ttl=30\n", "30", false, false},
		{"no identity", LeasePrefix, "ttl=30\n", "30", false, false},
		{"a short identity", key[:len(key)-1], "ttl=30\n", "30", false, false},
		{"a long identity", key + "0", "ttl=30\n", "30", false, false},
		{"no prefix", LeasePrefix[:len(LeasePrefix)-1], "", "v", true, true},
		{"a deletion", key, "", "", true, true},
		{"a deletion without identity", LeasePrefix + "x", "", "", true, true},
	} {
		for from, want := range map[Origin]bool{FromClient: test.client, FromRequest: test.request, FromServer: true} {
			for _, long := range []string{"", "long"} {
				msg := wire(long, test.key, testSeq, testUUID, test.props, test.value)
				size, tag := Scan(msg, from, 0)
				_, whole, _, err := Inspect(bytes.Clone(msg), from, 0)
				if got := err == nil; got != want || !got && !errors.Is(err, ErrKeyLease) {
					t.Errorf("%s, origin %d, %q: %v", test.name, from, long, err)
				}
				if size > 0 && (!want || tag != whole) || long == "" && from == FromRequest && (size > 0) != want {
					t.Errorf("%s, origin %d: Scan says %d, %x", test.name, from, size, tag)
				}
			}
		}
		if err := ValidUpdate([]byte(test.key), []byte(test.value)); (err == nil) != test.client {
			t.Errorf("%s: %v", test.name, err)
		}
	}
}

// A client's update loses the property that attaches a key to a lease.
func TestLeaseIsNoPropertyOfAClient(t *testing.T) {
	t.Parallel()
	lease := string(AppendLease(nil, LeaseID{1}))
	msg := wire("", "/k", testSeq, testUUID, "a=b\n"+lease+"c=d\n", "v")
	size, tag, _, err := Inspect(msg, FromClient, 0)
	if err != nil || string(Record(msg[:size]).Props()) != "a=b\nc=d\n" {
		t.Errorf("%q, %v", Record(msg[:size]).Props(), err)
	}
	if _, ok := LeaseOf(Record(msg[:size]), tag); ok {
		t.Error("it is attached")
	}
}

// What is written in the text of a lease is read again.
func TestLeaseText(t *testing.T) {
	t.Parallel()
	for _, ttl := range []time.Duration{time.Nanosecond, 100 * time.Millisecond, time.Second, 90*time.Minute + 3*time.Nanosecond, 2000*time.Hour + time.Nanosecond, MaxTTL} {
		if got := LeaseTime(AppendLeaseTime(nil, ttl)); got != ttl || got != TTLOf(AppendTTL(nil, ttl)) {
			t.Errorf("%v is read as %v", ttl, got)
		}
	}
	for _, text := range []string{"", "0", "x", "-1", "1e9", " 1", "1 "} {
		if ttl := LeaseTime([]byte(text)); ttl != 0 {
			t.Errorf("%q is %v", text, ttl)
		}
	}
	id := LeaseID{15: 0xef}
	if got, ok := LeaseOfKey(AppendLeaseKey(nil, id)); !ok || got != id {
		t.Errorf("%x, %v", got, ok)
	}
}
