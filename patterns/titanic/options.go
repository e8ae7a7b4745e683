package titanic

import (
	"cmp"
	"errors"
	"strconv"
	"time"

	"clustermap/patterns/majordomo"
	"clustermap/sockets"
)

// Defaults of Options and ClientOptions.
const (
	DefaultConcurrency     = 32
	DefaultPerService      = 16
	DefaultAttemptTimeout  = 5 * time.Minute
	DefaultRetryMin        = 100 * time.Millisecond
	DefaultRetryMax        = 5 * time.Second
	DefaultRequestTTL      = 7 * 24 * time.Hour
	DefaultReplyTTL        = 7 * 24 * time.Hour
	DefaultMaxRequestBytes = 8 << 20
	DefaultMaxReplyBytes   = 8 << 20
	DefaultMaxRequests     = 1_000_000
	DefaultMaxBytes        = 1 << 30
	DefaultMaxServices     = 4096
	DefaultMaxHeldBytes    = 256 << 20

	DefaultPollMin = 20 * time.Millisecond
	DefaultPollMax = time.Second
)

// Options configures a Server. Broker and Dir are needed.
type Options struct {
	// Broker is the endpoint of the Majordomo broker, as majordomo.WorkerOptions has it.
	Broker string

	// Dir is the directory of the store. It is created if it does not exist. One
	// server at a time uses it.
	Dir string

	// Concurrency is how many requests to each of titanic.request,
	// titanic.reply and titanic.close are handled at once. Requests that wait for the
	// disk at the same time share a flush, so many are faster than few. Each is a
	// connection to the broker. At most majordomo.MaxConcurrency. 0 means
	// DefaultConcurrency.
	Concurrency int

	// PerService is how many stored requests of one service are given to the broker
	// at once. It should be as many as the service has workers: more wait in the
	// broker, and their AttemptTimeout runs. 0 means DefaultPerService.
	PerService int

	// AttemptTimeout is how long the server waits for a worker's reply before it
	// tries again. Until then the request may still be executed, so it should be longer
	// than a worker ever takes. 0 means DefaultAttemptTimeout.
	AttemptTimeout time.Duration

	// RetryMin and RetryMax bound the wait before a request that failed is
	// tried again, and before the broker is asked again for a service without workers. It
	// doubles from one to the other, and a random part of up to half is left out. 0
	// means DefaultRetryMin and DefaultRetryMax.
	RetryMin, RetryMax time.Duration

	// RequestTTL is how long a request is kept that is not executed, and ReplyTTL how long
	// a reply is kept that no client has closed. Then it is deleted, and its
	// UUID is unknown. 0 means DefaultRequestTTL and DefaultReplyTTL; negative means for
	// ever.
	RequestTTL, ReplyTTL time.Duration

	// MaxRequestBytes bounds the frames of a request to titanic.request, and
	// MaxReplyBytes those of a worker's reply; each can have MaxFrames at most. A request
	// beyond it is answered by 400, and a reply beyond it is replaced by a
	// RefusedError. At most 512 MiB. 0 means DefaultMaxRequestBytes and
	// DefaultMaxReplyBytes.
	MaxRequestBytes, MaxReplyBytes int

	// MaxRequests bounds the requests and replies that are stored. Each takes some 250 bytes of
	// memory. Beyond it, and beyond MaxBytes, titanic.request answers 500. 0 means
	// DefaultMaxRequests.
	MaxRequests int

	// MaxBytes bounds the bytes of stored requests and replies. While the replies
	// alone have as much, nothing is executed, so that the store never has more than twice
	// this and the replies that are under way. 0 means DefaultMaxBytes.
	MaxBytes int64

	// MaxHeldBytes bounds the bytes of replies that are in memory because they wait for the
	// disk, all services together. With half of it workers are given nothing more, and a
	// reply that finds no room is dropped and its request executed again. A lone reply
	// is kept in any case. 0 means DefaultMaxHeldBytes.
	MaxHeldBytes int

	// MaxServices bounds the services that stored requests wait for. Beyond it,
	// titanic.request answers 500 for other services. 0 means DefaultMaxServices.
	MaxServices int

	// MaxBatch bounds how many changes of the store share a flush. 0 means no bound
	// but the bytes of a transaction; 1 means a flush for each, and is for
	// comparison.
	MaxBatch int

	// Heartbeat and Liveness are majordomo.WorkerOptions'.
	Heartbeat time.Duration
	Liveness  int

	// Socket configures the sockets that connect to the broker, as
	// majordomo.WorkerOptions and majordomo.ClientOptions have it: security, the
	// monitor.
	Socket sockets.Options
}

// OptionError is one thing that is wrong with an options struct. The constructors
// return all of them at once, joined (errors.Join).
type OptionError struct {
	Field  string
	Reason string
}

func (e *OptionError) Error() string { return "titanic: option " + e.Field + " " + e.Reason }

// checker collects the faults of an options struct.
type checker struct{ faults []error }

func (c *checker) bad(field, reason string) {
	c.faults = append(c.faults, &OptionError{field, reason})
}

func (c *checker) err() error { return errors.Join(c.faults...) }

// positive fills in the default of a number or a time that must not be negative.
func positive[T int | int64 | time.Duration](c *checker, field string, v *T, standard T) {
	if *v < 0 {
		c.bad(field, "is negative")
	}
	if *v == 0 {
		*v = standard
	}
}

// MaxMessageBytes bounds MaxRequestBytes and MaxReplyBytes, so that all sizes fit
// what bbolt can store, on systems of 32 bits too.
const MaxMessageBytes = 512 << 20

// withDefaults returns o with its defaults, or all that is wrong with it.
func (o Options) withDefaults() (Options, error) {
	var c checker
	if o.Broker == "" {
		c.bad("Broker", "is empty")
	}
	if o.Dir == "" {
		c.bad("Dir", "is empty")
	}
	positive(&c, "Concurrency", &o.Concurrency, DefaultConcurrency)
	if o.Concurrency > majordomo.MaxConcurrency {
		c.bad("Concurrency", "is above "+strconv.Itoa(majordomo.MaxConcurrency))
	}
	positive(&c, "PerService", &o.PerService, DefaultPerService)
	positive(&c, "AttemptTimeout", &o.AttemptTimeout, DefaultAttemptTimeout)
	positive(&c, "RetryMin", &o.RetryMin, min(DefaultRetryMin, cmp.Or(max(o.RetryMax, 0), DefaultRetryMin)))
	positive(&c, "RetryMax", &o.RetryMax, max(DefaultRetryMax, o.RetryMin))
	if o.RetryMax < o.RetryMin {
		c.bad("RetryMax", "is shorter than RetryMin")
	}
	if o.RequestTTL == 0 {
		o.RequestTTL = DefaultRequestTTL
	}
	if o.ReplyTTL == 0 {
		o.ReplyTTL = DefaultReplyTTL
	}
	positive(&c, "MaxRequestBytes", &o.MaxRequestBytes, DefaultMaxRequestBytes)
	positive(&c, "MaxReplyBytes", &o.MaxReplyBytes, DefaultMaxReplyBytes)
	if o.MaxRequestBytes > MaxMessageBytes {
		c.bad("MaxRequestBytes", "is above 512 MiB")
	}
	if o.MaxReplyBytes > MaxMessageBytes {
		c.bad("MaxReplyBytes", "is above 512 MiB")
	}
	positive(&c, "MaxRequests", &o.MaxRequests, DefaultMaxRequests)
	positive(&c, "MaxBytes", &o.MaxBytes, DefaultMaxBytes)
	positive(&c, "MaxHeldBytes", &o.MaxHeldBytes, DefaultMaxHeldBytes)
	positive(&c, "MaxServices", &o.MaxServices, DefaultMaxServices)
	positive(&c, "MaxBatch", &o.MaxBatch, 0)
	positive(&c, "Heartbeat", &o.Heartbeat, 0)
	positive(&c, "Liveness", &o.Liveness, 0)
	return o, c.err()
}

// ClientOptions configures a Client. Broker is needed.
type ClientOptions struct {
	// Broker is the endpoint of the Majordomo broker.
	Broker string

	// PollMin and PollMax bound the wait of Client.Wait before it asks again. It
	// doubles from one to the other. 0 means DefaultPollMin and DefaultPollMax.
	PollMin, PollMax time.Duration

	// Socket configures the sockets that connect to the broker, as
	// majordomo.ClientOptions has it.
	Socket sockets.Options
}

func (o ClientOptions) withDefaults() (ClientOptions, error) {
	var c checker
	if o.Broker == "" {
		c.bad("Broker", "is empty")
	}
	positive(&c, "PollMin", &o.PollMin, min(DefaultPollMin, cmp.Or(max(o.PollMax, 0), DefaultPollMin)))
	positive(&c, "PollMax", &o.PollMax, max(DefaultPollMax, o.PollMin))
	if o.PollMax < o.PollMin {
		c.bad("PollMax", "is shorter than PollMin")
	}
	return o, c.err()
}
