package httpkv_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"clustermap/chp"
	"clustermap/chp/httpkv"
)

// A program that embeds a server lets others use the map over HTTP, with a token.
func Example() {
	server, err := chp.NewServer(chp.ServerOptions{Host: "127.0.0.1"})
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	go server.Serve(context.Background())
	<-server.Ready()
	access, err := httpkv.NewProven(strings.NewReader("the-token-of-this-example"))
	if err != nil {
		log.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	defer listener.Close()
	go func() {
		h := httpkv.New(httpkv.Options{Write: true, Access: access})
		h.Attach(server)
		pages := http.NewServeMux()
		http.Serve(listener, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if httpkv.Handles(r) { // not by the ServeMux, which changes paths: a key may have // in it
				h.ServeHTTP(w, r)
				return
			}
			pages.ServeHTTP(w, r)
		}))
	}()

	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Minute}
	for _, method := range []string{http.MethodPut, http.MethodGet} {
		r, err := http.NewRequest(method, "http://"+listener.Addr().String()+"/v1/kv/lamp//1", strings.NewReader("on"))
		if err != nil {
			log.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer the-token-of-this-example")
		answer, err := client.Do(r)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(answer.Status)
		_, _ = io.Copy(os.Stdout, answer.Body)
		answer.Body.Close()
	}
	// Output:
	// 204 No Content
	// 200 OK
	// on
}
