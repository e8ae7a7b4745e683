// Command server is the server of Clone model 5: as in model 4, and an update may
// delete a key, or give it a time to live.
package main

import (
	"fmt"
	"time"

	"clustermap/examples/clone/internal/kv"
)

func main() {
	ctx, host := kv.Start("`address` to serve on")
	server := kv.Serve(ctx, kv.Five, host)
	defer server.End()
	collector := server.Collect(host)
	defer collector.Close()
	fmt.Println("ready: collecting")

	deadlines := map[string]time.Time{}
	update := func(m kv.Message) {
		server.Publish(m)
		delete(deadlines, m.Key)
		if ttl := m.TTL(); ttl > 0 && len(m.Body) > 0 {
			deadlines[m.Key] = time.Now().Add(ttl)
		}
	}
	for tick := time.Tick(100 * time.Millisecond); ; {
		select {
		case <-collector.Readable():
			if m, ok := kv.ParseFive(kv.Must(collector.Recv(ctx))); ok {
				update(m)
			}
		case <-tick:
			for key, deadline := range deadlines {
				if time.Now().After(deadline) {
					update(kv.Message{Key: key}) // without a body: deleted
				}
			}
		case <-server.Requests.Readable():
			server.Answer(true)
		case <-ctx.Done():
			return
		}
	}
}
