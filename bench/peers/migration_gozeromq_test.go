package peers

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/go-zeromq/zmq4"
)

// goZeromqSub receives one message, as on docs/MIGRATION.md.
func goZeromqSub(ctx context.Context, endpoint func(string) string) error {
	sub := zmq4.NewSub(ctx, zmq4.WithDialerRetry(200*time.Millisecond))
	defer sub.Close()
	if err := sub.SetOption(zmq4.OptionSubscribe, "weather."); err != nil {
		return err
	}
	if err := sub.Dial(endpoint("tcp://127.0.0.1:5556")); err != nil {
		return err
	}
	m, err := sub.Recv()
	if err != nil {
		return err
	}
	topic, body := m.Frames[0], m.Frames[1]
	if string(topic) != "weather.oslo" || string(body) != "rain" {
		return errors.New("another message")
	}
	return nil
}

func TestMigrationGoZeromq(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	pub := zmq4.NewPub(ctx)
	defer pub.Close()
	if err := pub.Listen("tcp://127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		ended <- goZeromqSub(ctx, func(string) string { return "tcp://" + strings.TrimPrefix(pub.Addr().String(), "tcp://") })
	}()
	for tick := time.Tick(10 * time.Millisecond); ; <-tick {
		select {
		case err := <-ended:
			if err != nil {
				t.Error(err)
			}
			return
		default:
			if err := pub.SendMulti(zmq4.NewMsgFrom([]byte("weather.oslo"), []byte("rain"))); err != nil {
				t.Fatal(err)
			}
		}
	}
}
