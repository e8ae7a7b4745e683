// Command curve runs a server that only accepts a client with a known key, over
// encrypted connections, and shows that it refuses another one.
//
//	go run ./examples/curve
//
// It ends by itself.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"clustermap/chp"
	"clustermap/sockets"
	"clustermap/zmtp"
)

func main() {
	ctx, stop := context.WithTimeout(context.Background(), 30*time.Second)
	defer stop()
	// Real programs read secret keys from files: see chp keygen, and zmtp.ParseKeyFile.
	serverKey, aliceKey, malloryKey := zmtp.GenerateKeyPair(), zmtp.GenerateKeyPair(), zmtp.GenerateKeyPair()

	server, err := chp.NewServer(chp.ServerOptions{Security: sockets.Security{
		CurveServer:    true,
		CurveSecretKey: serverKey.Secret,
		Authenticate:   sockets.AllowKeys(aliceKey.Public),
	}})
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	if err := server.Listen(ctx); err != nil {
		log.Fatal(err)
	}
	go server.Serve(ctx)

	for name, key := range map[string]zmtp.KeyPair{"alice": aliceKey, "mallory": malloryKey} {
		refused := make(chan error, 1)
		client, err := chp.NewClient(chp.ClientOptions{
			Servers:  []string{server.Endpoints().Snapshot},
			Security: sockets.Security{CurveSecretKey: key.Secret, CurveServerKey: serverKey.Public},
			OnFailure: func(_ string, err error) {
				select {
				case refused <- err:
				default: // the client keeps trying
				}
			},
		})
		if err != nil {
			log.Fatal(err)
		}
		defer client.Close()
		written := make(chan error, 1)
		go func() {
			_, err := client.SetSync(ctx, "/greeting", []byte("from "+name))
			written <- err
		}()
		select {
		case err := <-written:
			fmt.Println(name, "has written:", err == nil)
		case err := <-refused:
			fmt.Println(name, "is refused:", errors.Is(err, zmtp.ErrRefused))
		}
	}
}
