package hosts

import "testing"

func TestNetworksOfOneOwnerAreOneAddress(t *testing.T) {
	t.Parallel()
	for remote, want := range map[string]string{
		"10.0.0.1": "10.0.0.1", "10.0.0.1:80": "10.0.0.1", "::ffff:10.0.0.1": "10.0.0.1", "[::ffff:10.0.0.1]:80": "10.0.0.1",
		"2001:db8::1": "2001:db8::", "[2001:db8::ff:1]:80": "2001:db8::", "2001:db8:0:1::1": "2001:db8:0:1::", "fe80::1%eth0": "fe80::", "[fe80::1%eth0]:80": "fe80::",
		"": "invalid IP", "@": "invalid IP", "/run/socket": "invalid IP",
	} {
		if got := Of(remote).String(); got != want {
			t.Errorf("%q: %s, want %s", remote, got, want)
		}
	}
}
