// Package upgrade has tests only, of what an operator does who comes from an earlier
// version, commit 564c566: data directories and backups that it wrote, servers and clients
// of both versions that talk to each other, and a pair that is upgraded while clients write.
//
// What that version wrote to disk and to the network is in testdata, whose README.md says
// how it was made. The other tests build its command from the history of this repository;
// without the history, and with -short, they are skipped. With the environment variable
// CLUSTERMAP_REQUIRE_HISTORY=1 a missing history fails them.
package upgrade
