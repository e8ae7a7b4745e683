package recipes_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"clustermap/chp"
	"clustermap/chp/recipes"
	"clustermap/internal/testenv"
)

var errStale = errors.New("the lock is another's")

// What docs/CONSISTENCY.md says of locks and tokens.
func TestLocksAndTokens(t *testing.T) {
	t.Parallel()
	ctx := testenv.Context(t)
	server, err := chp.NewServer(chp.ServerOptions{})
	testenv.Must(t, err)
	served := make(chan error, 1)
	testenv.Must(t, server.Listen(ctx))
	go func() { served <- server.Serve(context.Background()) }()
	defer func() {
		testenv.Must(t, server.Close())
		testenv.Must(t, <-served)
	}()
	open := func() (*chp.Client, *recipes.Mutex) {
		client, err := chp.NewClient(chp.ClientOptions{Servers: []string{server.Endpoints().Snapshot}})
		testenv.Must(t, err)
		t.Cleanup(func() { testenv.Must(t, client.Close()) })
		mutex, err := recipes.NewMutex(client, "/locks/report", recipes.Options{})
		testenv.Must(t, err)
		t.Cleanup(func() { testenv.Must(t, mutex.Close()) })
		return client, mutex
	}
	client, one := open()
	_, other := open()

	mine, err := one.Lock(ctx)
	testenv.Must(t, err)
	testenv.Must(t, mine.Err())
	// Here this program stands still, for longer than its time to live.
	testenv.Must(t, server.Delete(ctx, mine.Key()))
	theirs, err := other.Lock(ctx)
	testenv.Must(t, err)

	newest, report := int64(0), "" // of a resource outside of the map
	write := func(token int64, content string) error {
		if token < newest {
			return errStale
		}
		newest, report = token, content
		return nil
	}

	if err = write(theirs.Token(), "theirs"); err != nil {
		t.Error(err)
	}
	err = write(mine.Token(), "mine")
	fmt.Println(report, err) // theirs the lock is another's
	if report != "theirs" || err != errStale {
		t.Errorf("%s, %v", report, err)
	}

	_, err = client.SetIf(ctx, "/report", []byte("mine"), mine.Held())
	conflict := (*chp.ConflictError)(nil)
	fmt.Println(errors.As(err, &conflict)) // true
	if conflict == nil {
		t.Error(err)
	}
}
