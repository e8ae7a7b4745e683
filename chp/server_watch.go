package chp

import (
	"clustermap/chp/internal/subtree"
	"clustermap/chp/internal/watch"
)

// Watch begins to watch some subtrees of the map in the server's own process; without
// arguments it watches the whole map. It reports the present state and then every
// change, as [Client.Watch] does. Watch can be called before Serve. It returns a
// *SubtreeError for a malformed subtree, and ErrClosed after Close.
//
// An update is reported when it is published, so an update that waits for the log on
// disk or for the other server of a pair is not reported before that. Deletions by a
// client or by Server.Delete have CauseDeleted, those of expired keys CauseExpired.
//
// On a server of a pair a watch continues when the server becomes active or passive. A
// passive server reports the active one's updates as they arrive. When it replaces its
// map by a copy of the active one's, the watch reports the differences with CauseResync.
//
// The events wait in a queue that ServerOptions.WatchQueue bounds. The server does not
// wait for a watch: one that is not read fast enough ends with ErrLagged. All watches
// end with ErrClosed when the server closes.
func (s *Server) Watch(subtrees ...string) (*Watch, error) {
	for _, spec := range subtrees {
		if err := subtree.Check(spec); err != nil {
			return nil, err
		}
	}
	return newWatch(s.live.Watch(watch.Options{Subtrees: subtrees}))
}
