// Command pipeline distributes jobs to workers. A job is done when a worker has
// acknowledged it: jobs of a worker that fails, even by kill -9, go to another one.
//
//	go run ./examples/pipeline                    # ends when all jobs are done
//	python3 examples/pipeline/worker.py           # as many as you like, in other terminals
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
	"strconv"
	"sync"
	"time"

	"clustermap/sockets"
)

func main() {
	jobsAt := flag.String("jobs-at", "tcp://127.0.0.1:5557", "`endpoint` where workers get jobs")
	doneAt := flag.String("done-at", "tcp://127.0.0.1:5558", "`endpoint` where they acknowledge them")
	count := flag.Int("count", 100, "number of jobs")
	window := flag.Int("window", 10, "number of jobs that workers may have at once")
	timeout := flag.Duration("timeout", 2*time.Second, "after which a job is given to another worker")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()

	push, err := sockets.NewPush(sockets.Options{})
	check(err)
	defer push.Close()
	check(push.Bind(ctx, *jobsAt))
	pull, err := sockets.NewPull(sockets.Options{})
	check(err)
	defer pull.Close()
	check(pull.Bind(ctx, *doneAt))

	todo := make(chan int, *count)        // numbers of jobs to send, some for the second time
	slots := make(chan struct{}, *window) // one for each job that a worker has
	var acknowledged sync.Map             // has the numbers of the jobs that are done
	go func() {
		for number := range todo {
			if _, done := acknowledged.Load(number); done {
				continue // meanwhile
			}
			time.AfterFunc(*timeout, func() { todo <- number })
			// Send waits for a worker.
			if push.Send(ctx, strconv.AppendInt(nil, int64(number), 10), fmt.Appendf(nil, "job %d", number)) != nil {
				return
			}
		}
	}()
	go func() {
		for number := range *count {
			slots <- struct{}{}
			todo <- number
		}
	}()
	for done := 0; done < *count; {
		m, err := pull.Recv(ctx)
		check(err)
		number, err := strconv.Atoi(string(m[0]))
		check(err)
		// A job that was given to two workers can be acknowledged twice.
		if _, again := acknowledged.LoadOrStore(number, true); !again {
			<-slots
			done++
			fmt.Printf("done %d: %s\n", number, m[1])
		}
	}
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
