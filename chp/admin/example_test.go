package admin_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"

	"clustermap/chp"
	"clustermap/chp/admin"

	"github.com/prometheus/client_golang/prometheus"
)

// A program that embeds a server and has a client mounts the pages of the server in its own
// mux, and the client's metrics in its own registry.
func Example() {
	server, err := chp.NewServer(chp.ServerOptions{Host: "127.0.0.1"})
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if err := server.Listen(ctx); err != nil {
		log.Fatal(err)
	}
	go server.Serve(ctx)
	<-server.Ready()
	client, err := chp.NewClient(chp.ClientOptions{Servers: []string{server.Endpoints().Snapshot}})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	h, err := admin.NewHandler(admin.Options{})
	if err != nil {
		log.Fatal(err)
	}
	h.Attach(server)
	http.Handle("/chp/", http.StripPrefix("/chp", h))
	prometheus.MustRegister(admin.NewClientCollector(client))

	web := httptest.NewServer(http.DefaultServeMux)
	defer web.Close()
	answer, err := http.Get(web.URL + "/chp/readyz")
	if err != nil {
		log.Fatal(err)
	}
	defer answer.Body.Close()
	fmt.Println(answer.Status)
	// Output: 200 OK
}

// A service that has a replica is ready while that follows a server, and is not far behind it.
func ExampleNewReadyHandler() {
	server, err := chp.NewServer(chp.ServerOptions{Host: "127.0.0.1"})
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if err := server.Listen(ctx); err != nil {
		log.Fatal(err)
	}
	go server.Serve(ctx)
	client, err := chp.NewClient(chp.ClientOptions{Servers: []string{server.Endpoints().Snapshot}})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	http.Handle("/readyz", admin.NewReadyHandler(admin.ClientCheck("map", client, 10_000)))

	if err := client.WaitActive(ctx); err != nil {
		log.Fatal(err)
	}
	web := httptest.NewServer(http.DefaultServeMux)
	defer web.Close()
	answer, err := http.Get(web.URL + "/readyz?verbose")
	if err != nil {
		log.Fatal(err)
	}
	defer answer.Body.Close()
	_, _ = io.Copy(os.Stdout, answer.Body)
	// Output: [+] map
}
