package sockets_test

import (
	"context"
	"fmt"
	"time"

	"clustermap/sockets"
	"clustermap/zmtp"
)

// A server and a client authenticate each other, and all traffic is encrypted. The
// keys are usually generated once and kept in files.
func ExampleSecurity() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	serverKeys, clientKeys := zmtp.GenerateKeyPair(), zmtp.GenerateKeyPair()

	server, err := sockets.NewPull(sockets.Options{Security: sockets.Security{
		CurveServer:    true,
		CurveSecretKey: serverKeys.Secret,
		Authenticate:   sockets.AllowKeys(clientKeys.Public),
	}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer server.Close()
	if err := server.Bind(ctx, "tcp://127.0.0.1:*"); err != nil {
		fmt.Println(err)
		return
	}

	client, err := sockets.NewPush(sockets.Options{Security: sockets.Security{
		CurveSecretKey: clientKeys.Secret,
		CurveServerKey: serverKeys.Public,
	}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()
	if err := client.Connect(server.LastEndpoint()); err != nil {
		fmt.Println(err)
		return
	}
	if err := client.Send(ctx, []byte("for your eyes only")); err != nil {
		fmt.Println(err)
		return
	}
	m, err := server.Recv(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%s\n", m[0])
	// Output: for your eyes only
}

// An Authenticator checks user names and passwords, and adds a property to the
// user.
func ExampleAuthenticator() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	authenticate := func(_ context.Context, r sockets.AuthRequest) (sockets.User, error) {
		if r.Username() != "admin" || r.Password() != "secret" {
			return sockets.User{}, fmt.Errorf("%w: no such user", sockets.ErrDenied)
		}
		return sockets.User{ID: r.Username(), Metadata: map[string]string{"Group": "staff"}}, nil
	}
	server, err := sockets.NewPull(sockets.Options{Security: sockets.Security{PlainServer: true, Authenticate: authenticate}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer server.Close()
	if err := server.Bind(ctx, "tcp://127.0.0.1:*"); err != nil {
		fmt.Println(err)
		return
	}
	client, err := sockets.NewPush(sockets.Options{Security: sockets.Security{PlainUsername: "admin", PlainPassword: "secret"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()
	if err := client.Connect(server.LastEndpoint()); err != nil {
		fmt.Println(err)
		return
	}
	if err := client.Send(ctx, []byte("hello")); err != nil {
		fmt.Println(err)
		return
	}
	var b sockets.Batch
	if err := server.RecvBatch(ctx, &b); err != nil {
		fmt.Println(err)
		return
	}
	defer b.Release()
	group, _ := b.Peer().Property("Group")
	fmt.Println(b.Peer().UserID(), "of", group)
	// Output: admin of staff
}

// A ZAP handler authenticates the peers of all servers of the program.
func ExampleSecurity_zap() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	names := new(sockets.Inproc) // a separate namespace, so that examples do not affect each other

	handler, err := sockets.NewRep(sockets.Options{Inproc: names})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer handler.Close()
	if err := handler.Bind(ctx, "inproc://zeromq.zap.01"); err != nil {
		fmt.Println(err)
		return
	}
	go func() {
		for {
			r, err := handler.Recv(ctx)
			if err != nil {
				return // closed
			}
			// version, request id, domain, address, identity, mechanism, user, password
			status, text, user := "400", "unknown user", ""
			if string(r[5]) == "PLAIN" && string(r[6]) == "admin" && string(r[7]) == "secret" {
				status, text, user = "200", "OK", "admin"
			}
			if handler.Send(ctx, r[0], r[1], []byte(status), []byte(text), []byte(user), nil) != nil {
				return
			}
		}
	}()

	server, err := sockets.NewPull(sockets.Options{Inproc: names, Security: sockets.Security{PlainServer: true}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer server.Close()
	if err := server.Bind(ctx, "tcp://127.0.0.1:*"); err != nil {
		fmt.Println(err)
		return
	}
	client, err := sockets.NewPush(sockets.Options{Security: sockets.Security{PlainUsername: "admin", PlainPassword: "secret"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()
	if err := client.Connect(server.LastEndpoint()); err != nil {
		fmt.Println(err)
		return
	}
	if err := client.Send(ctx, []byte("let in")); err != nil {
		fmt.Println(err)
		return
	}
	m, err := server.Recv(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%s\n", m[0])
	// Output: let in
}
