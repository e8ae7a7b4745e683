// Command jobs distributes jobs to workers, like the example pipeline. When the
// connection to a worker ends, because it was killed or stopped, its jobs go to others at
// once.
//
//	go run ./examples/jobs                    # ends when all jobs are done
//	python3 examples/jobs/worker.py           # as many as you like, in other terminals
//
// Stop each with Ctrl-C.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"time"

	"clustermap/sockets"
)

func main() {
	at := flag.String("at", "tcp://127.0.0.1:5559", "`endpoint` where workers get jobs and acknowledge them")
	count := flag.Int("count", 100, "number of jobs")
	window := flag.Int("window", 2, "number of jobs that a worker may have at once")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	router, err := sockets.NewRouter(sockets.Options{
		Notify:            sockets.NotifyConnect | sockets.NotifyDisconnect,
		HeartbeatInterval: time.Second, // ends the connection to a machine that has lost power
	})
	check(err)
	defer router.Close()
	check(router.Bind(ctx, *at))

	var todo []int
	for number := range *count {
		todo = append(todo, number)
	}
	has := map[string][]int{} // the jobs of each worker
	for done := 0; done < *count; {
		m, err := router.Recv(ctx) // the identity of a worker, and its message
		check(err)
		worker := string(m[0])
		jobs, known := has[worker]
		switch {
		case len(m) == 2 && !known: // an empty notice: it has connected
			has[worker] = nil
		case len(m) == 2: // its connection has ended
			todo = append(todo, jobs...)
			delete(has, worker)
		default: // it has done a job
			number, err := strconv.Atoi(string(m[1]))
			check(err)
			if i := slices.Index(jobs, number); i >= 0 {
				has[worker] = slices.Delete(jobs, i, i+1)
				done++
				fmt.Printf("done %d: %s\n", number, m[2])
			}
		}
		for worker := range has {
			for len(has[worker]) < *window && len(todo) > 0 {
				number := todo[0]
				todo, has[worker] = todo[1:], append(has[worker], number)
				// If the worker is gone, the message is dropped, and the notice comes.
				check(router.Send(ctx, []byte(worker), fmt.Append(nil, number), fmt.Appendf(nil, "job %d", number)))
			}
		}
	}
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
