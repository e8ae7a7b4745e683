package titanic

import (
	"cmp"
	"strconv"
	"time"

	"clustermap/internal/option"
	"clustermap/patterns/majordomo"
	"clustermap/sockets"
)

// Options configures a Server. Broker and Dir are required.
type Options struct {
	// Broker is the endpoint of the Majordomo broker: see majordomo.WorkerOptions.
	Broker string

	// Dir is the directory of the store. It is created if it does not exist. Only
	// one server at a time can use it.
	Dir string

	// Concurrency bounds the requests to each of titanic.request, titanic.reply and
	// titanic.close that are handled at once, up to majordomo.MaxConcurrency. Each
	// has a connection to the broker. Requests that wait for the disk at the same
	// time share a flush, so a larger value has more throughput. 0 means
	// DefaultConcurrency.
	Concurrency int

	// PerService bounds the stored requests of one service that are at the broker
	// at once. It should be the number of the service's workers: further requests
	// wait in the broker during their AttemptTimeout. 0 means DefaultPerService.
	PerService int

	// AttemptTimeout is the time limit for a worker's reply; then the request is
	// tried again. The first worker may still execute it, so AttemptTimeout should
	// be longer than any execution. 0 means DefaultAttemptTimeout.
	AttemptTimeout time.Duration

	// RetryMin and RetryMax bound the wait before a failed request is tried again,
	// and before the broker is asked again for a service without workers. The wait
	// doubles from RetryMin to RetryMax; up to half of it is random. 0 means
	// DefaultRetryMin and DefaultRetryMax.
	RetryMin, RetryMax time.Duration

	// RequestTTL is the time after which a request that was not executed expires,
	// and ReplyTTL that for a reply that was not closed. It is deleted, and its UUID
	// is unknown. 0 means DefaultRequestTTL and DefaultReplyTTL; negative means
	// never.
	RequestTTL, ReplyTTL time.Duration

	// MaxRequestBytes and MaxReplyBytes bound the frames of a request to
	// titanic.request and of a worker's reply, in bytes. Each can have up to
	// MaxFrames frames. Larger requests are answered 400, and a larger reply is
	// replaced by a RefusedError. The limit is MaxMessageBytes. 0 means
	// DefaultMaxRequestBytes and DefaultMaxReplyBytes.
	MaxRequestBytes, MaxReplyBytes int

	// MaxRequests bounds the stored requests and replies. Each needs some 250 bytes
	// of memory. When MaxRequests or MaxBytes is reached, titanic.request answers
	// 500. 0 means DefaultMaxRequests.
	MaxRequests int

	// MaxBytes bounds the bytes of stored requests and replies. While the replies
	// alone have as many, no request is executed, so the store never has more than
	// twice MaxBytes and the replies in flight. 0 means DefaultMaxBytes.
	MaxBytes int64

	// MaxHeldBytes bounds the bytes in memory of the requests of all services that
	// are at the broker, and of the replies that wait for the disk. Requests have
	// half of it, of which each service may take as much as it leaves for others;
	// the next ones wait on disk. A reply for which there is no room is dropped, and
	// its request executed again. A single request or reply may exceed it. 0 means
	// DefaultMaxHeldBytes.
	MaxHeldBytes int

	// MaxServices bounds the services for which stored requests wait. When it is
	// reached, titanic.request answers 500 for other services. 0 means
	// DefaultMaxServices.
	MaxServices int

	// MaxBatch bounds the changes of the store that share a flush. 0 means no limit
	// except the bytes of a transaction; 1, a flush for each change, is for
	// comparison.
	MaxBatch int

	// Heartbeat and Liveness: see majordomo.WorkerOptions.
	Heartbeat time.Duration
	Liveness  int

	// OnDismiss, if set, is called when the broker refuses a worker of the three services,
	// or is ending: see majordomo.WorkerOptions.OnDismiss, and majordomo.AllowWorkers for
	// who may have these services.
	OnDismiss func()

	// Socket configures the sockets that connect to the broker: see
	// majordomo.WorkerOptions and majordomo.ClientOptions.
	Socket sockets.Options
}

// OptionError describes one invalid field of the options. Constructors report all
// invalid fields at once, joined by errors.Join.
// The packages of this module share the type; its field Package names the one.
type OptionError = option.Error

// withDefaults returns o with its defaults. The error reports all invalid fields.
func (o Options) withDefaults() (Options, error) {
	c := option.Checker{Package: "titanic"}
	c.If(o.Broker == "", "Broker", "is empty")
	c.If(o.Dir == "", "Dir", "is empty")
	option.Default(&c, "Concurrency", &o.Concurrency, DefaultConcurrency)
	c.If(o.Concurrency > majordomo.MaxConcurrency, "Concurrency", "is above "+strconv.Itoa(majordomo.MaxConcurrency))
	option.Default(&c, "PerService", &o.PerService, DefaultPerService)
	option.Default(&c, "AttemptTimeout", &o.AttemptTimeout, DefaultAttemptTimeout)
	option.Default(&c, "RetryMin", &o.RetryMin, min(DefaultRetryMin, cmp.Or(max(o.RetryMax, 0), DefaultRetryMin)))
	option.Default(&c, "RetryMax", &o.RetryMax, max(DefaultRetryMax, o.RetryMin))
	c.If(o.RetryMax < o.RetryMin, "RetryMax", "is shorter than RetryMin")
	o.RequestTTL = cmp.Or(o.RequestTTL, DefaultRequestTTL)
	o.ReplyTTL = cmp.Or(o.ReplyTTL, DefaultReplyTTL)
	option.Default(&c, "MaxRequestBytes", &o.MaxRequestBytes, DefaultMaxRequestBytes)
	option.Default(&c, "MaxReplyBytes", &o.MaxReplyBytes, DefaultMaxReplyBytes)
	c.If(o.MaxRequestBytes > MaxMessageBytes, "MaxRequestBytes", "is above 512 MiB")
	c.If(o.MaxReplyBytes > MaxMessageBytes, "MaxReplyBytes", "is above 512 MiB")
	option.Default(&c, "MaxRequests", &o.MaxRequests, DefaultMaxRequests)
	option.Default(&c, "MaxBytes", &o.MaxBytes, DefaultMaxBytes)
	option.Default(&c, "MaxHeldBytes", &o.MaxHeldBytes, DefaultMaxHeldBytes)
	option.Default(&c, "MaxServices", &o.MaxServices, DefaultMaxServices)
	option.Default(&c, "MaxBatch", &o.MaxBatch, 0)
	option.Default(&c, "Heartbeat", &o.Heartbeat, 0)
	option.Default(&c, "Liveness", &o.Liveness, 0)
	return o, c.Err()
}

// ClientOptions configures a Client. Broker is required.
type ClientOptions struct {
	// Broker is the endpoint of the Majordomo broker.
	Broker string

	// PollMin and PollMax bound the interval at which Client.Wait polls. It doubles
	// from PollMin to PollMax. 0 means DefaultPollMin and DefaultPollMax.
	PollMin, PollMax time.Duration

	// Socket configures the sockets that connect to the broker: see
	// majordomo.ClientOptions.
	Socket sockets.Options
}

func (o ClientOptions) withDefaults() (ClientOptions, error) {
	c := option.Checker{Package: "titanic"}
	c.If(o.Broker == "", "Broker", "is empty")
	option.Default(&c, "PollMin", &o.PollMin, min(DefaultPollMin, cmp.Or(max(o.PollMax, 0), DefaultPollMin)))
	option.Default(&c, "PollMax", &o.PollMax, max(DefaultPollMax, o.PollMin))
	c.If(o.PollMax < o.PollMin, "PollMax", "is shorter than PollMin")
	return o, c.Err()
}
