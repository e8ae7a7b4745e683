package sockets

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"clustermap/internal/queue"
	"clustermap/internal/route"
	"clustermap/zmtp"
)

// adjustable has the methods of every socket for its options.
type adjustable interface {
	Options() Options
	SetOptions(change func(*Options)) error
	Close() error
}

// adjusts makes a socket of some type.
func adjusts[S adjustable](make func(Options) (S, error)) func(Options) (adjustable, error) {
	return func(o Options) (adjustable, error) { return make(o) }
}

// liveOptions has a type that uses the option and a value for each option that can
// change in a live socket.
var liveOptions = map[string]struct {
	make  func(Options) (adjustable, error)
	value any
}{
	"Identity":               {adjusts(NewDealer), []byte("name")},
	"SendHWM":                {adjusts(NewPush), 7},
	"RecvHWM":                {adjusts(NewPull), 7},
	"SendHWMBytes":           {adjusts(NewPush), 700},
	"RecvHWMBytes":           {adjusts(NewPull), 700},
	"SendTotalBytes":         {adjusts(NewPub), 700},
	"SendBuffer":             {adjusts(NewPush), 64 << 10},
	"RecvBuffer":             {adjusts(NewPull), 64 << 10},
	"Linger":                 {adjusts(NewPush), time.Second},
	"ReconnectInterval":      {adjusts(NewPush), time.Second},
	"ReconnectIntervalMax":   {adjusts(NewPush), time.Minute},
	"ReconnectStop":          {adjusts(NewPush), ReconnectStopOnRefused},
	"ConnectTimeout":         {adjusts(NewPush), time.Second},
	"Backlog":                {adjusts(NewPush), 5},
	"Dial":                   {adjusts(NewPush), new(net.Dialer).DialContext},
	"Listen":                 {adjusts(NewPush), new(net.ListenConfig).Listen},
	"IPv6":                   {adjusts(NewPush), true},
	"TOS":                    {adjusts(NewPush), 8},
	"KeepAlive":              {adjusts(NewPush), KeepAliveOff},
	"KeepAliveIdle":          {adjusts(NewPush), time.Second},
	"KeepAliveInterval":      {adjusts(NewPush), time.Second},
	"KeepAliveCount":         {adjusts(NewPush), 2},
	"BindToDevice":           {adjusts(NewPush), "lo"},
	"SOCKSProxy":             {adjusts(NewPush), "localhost:1080"},
	"SOCKSUser":              {adjusts(NewPush), "user"},
	"SOCKSPassword":          {adjusts(NewPush), "secret"},
	"Security":               {adjusts(NewPush), Security{PlainServer: true}},
	"HeartbeatInterval":      {adjusts(NewPush), time.Second},
	"HeartbeatTimeout":       {adjusts(NewPush), time.Second},
	"HeartbeatTTL":           {adjusts(NewPush), time.Second},
	"HandshakeTimeout":       {adjusts(NewPush), time.Second},
	"MinVersion":             {adjusts(NewPush), 3},
	"MaxHandshakes":          {adjusts(NewPush), 5},
	"MaxConnections":         {adjusts(NewPush), 5},
	"Operator":               {adjusts(NewPush), func(*Peer) bool { return true }},
	"MaxMessageSize":         {adjusts(NewPull), int64(5000)},
	"MaxIncompleteBytes":     {adjusts(NewPull), 5000},
	"MaxSubscriptionBytes":   {adjusts(NewPub), 5000},
	"RecvTotalBytes":         {adjusts(NewPull), 5000},
	"MaxSubscriptions":       {adjusts(NewPub), 5},
	"MaxTopicSize":           {adjusts(NewPub), 5},
	"Metadata":               {adjusts(NewPush), map[string]string{"X-A": "b"}},
	"Mandatory":              {adjusts(NewRouter), true},
	"FullPolicy":             {adjusts(NewPub), PolicyBlock},
	"WaitSubscriber":         {adjusts(NewPub), true},
	"SendTimeout":            {adjusts(NewPush), time.Second},
	"RecvTimeout":            {adjusts(NewPull), time.Second},
	"BusyPoll":               {adjusts(NewDealer), time.Second},
	"Immediate":              {adjusts(NewPush), true},
	"Handover":               {adjusts(NewRouter), true},
	"Notify":                 {adjusts(NewRouter), NotifyConnect},
	"ProbeRouter":            {adjusts(NewDealer), true},
	"ReqRelaxed":             {adjusts(NewReq), true},
	"ReqCorrelate":           {adjusts(NewReq), true},
	"XPubVerbose":            {adjusts(NewXPub), true},
	"XPubVerboser":           {adjusts(NewXPub), true},
	"XPubManual":             {adjusts(NewXPub), true},
	"XPubManualLastValue":    {adjusts(NewXPub), true},
	"WelcomeMessage":         {adjusts(NewPub), []byte("hello")},
	"HelloMessage":           {adjusts(NewRouter), []byte("hello")},
	"DisconnectMessage":      {adjusts(NewRouter), []byte("bye")},
	"HiccupMessage":          {adjusts(NewDealer), []byte("again")},
	"OnlyFirstSubscribe":     {adjusts(NewXPub), true},
	"InvertMatching":         {adjusts(NewPub), true},
	"XSubVerboseUnsubscribe": {adjusts(NewXSub), true},
}

// TestLiveEveryOption: each option can change, or is one of those that cannot, and the
// page about options says so. An option that does not change keeps its default.
func TestLiveEveryOption(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/OPTIONS.md")
	must(t, err)
	_, section, _ := strings.Cut(string(page), "\n## Options that can change\n")
	section, _, _ = strings.Cut(section, "\n## ")
	list := regexp.MustCompile(`(?m)(^- .*\n)+`)
	listed := map[string]int{}
	for _, name := range regexp.MustCompile("`([A-Za-z0-9]+)`").FindAllStringSubmatch(list.FindString(section), -1) {
		listed[name[1]]++
	}
	for f := range reflect.TypeFor[Options]().Fields() {
		if listed[f.Name] != 1 {
			t.Errorf("docs/OPTIONS.md names %s %d times under \"Options that can change\", want once", f.Name, listed[f.Name])
		}
		if _, fixed := fixedOptions[f.Name]; fixed {
			continue
		}
		row, there := liveOptions[f.Name]
		if !there {
			t.Errorf("%s is neither in liveOptions nor in fixedOptions", f.Name)
			continue
		}
		t.Run(f.Name, func(t *testing.T) {
			t.Parallel()
			s, err := row.make(Options{})
			must(t, err)
			defer s.Close()
			set := func(name string, v any) {
				t.Helper()
				must(t, s.SetOptions(func(o *Options) { reflect.ValueOf(o).Elem().FieldByName(name).Set(reflect.ValueOf(v)) }))
			}
			before := s.Options()
			switch f.Name {
			case "SOCKSPassword":
				set("SOCKSUser", "user")
			case "BindToDevice", "TOS":
				if e := s.SetOptions(func(o *Options) { o.BindToDevice, o.TOS = "lo", 8 }); e != nil {
					t.Skip(e) // not on this system
				}
			}
			set(f.Name, row.value)
			if got := reflect.ValueOf(s.Options()).FieldByIndex(f.Index); !alike(got, reflect.ValueOf(row.value)) {
				t.Errorf("%v after it was set to %v", got, row.value)
			}
			set(f.Name, reflect.Zero(f.Type).Interface())
			after := s.Options()
			if got, want := reflect.ValueOf(after).FieldByIndex(f.Index), reflect.ValueOf(before).FieldByIndex(f.Index); !alike(got, want) {
				t.Errorf("%v after it was set to zero, and %v at first", got, want)
			}
		})
	}
	for name := range maps.Keys(liveOptions) {
		if _, there := reflect.TypeFor[Options]().FieldByName(name); !there {
			t.Errorf("there is no option %s", name)
		}
	}
}

// alike is DeepEqual for fields, where a nil slice is an empty one, and functions are
// only told from none.
func alike(a, b reflect.Value) bool {
	if a.Kind() == reflect.Func {
		return a.IsNil() == b.IsNil()
	}
	if a.Kind() == reflect.Slice || a.Kind() == reflect.Map {
		return fmt.Sprint(a) == fmt.Sprint(b)
	}
	return reflect.DeepEqual(a.Interface(), b.Interface())
}

// TestLiveFixed: options that cannot change are refused, each with its error, and
// nothing else changes with them. Options that only look as if they had changed are
// not refused.
func TestLiveFixed(t *testing.T) {
	t.Parallel()
	told := func(Event) {}
	push := open(t, NewPull, Options{Monitor: told, RecvHWM: 5})
	err := push.SetOptions(func(o *Options) {
		o.RecvHWM, o.MaxConnections = 6, 9
		o.Conflate, o.Inproc = true, new(Inproc)
		o.Monitor = func(Event) {}
	})
	var fields []string
	for _, e := range unjoin(err) {
		if o, ok := errors.AsType[*OptionError](e); ok {
			fields = append(fields, o.Field)
		}
	}
	slices.Sort(fields)
	if want := slices.Sorted(maps.Keys(fixedOptions)); !slices.Equal(fields, want) {
		t.Errorf("%v is refused, want %v", fields, want)
	}
	if o := push.Options(); o.RecvHWM != 5 || o.MaxConnections != -1 || o.Conflate {
		t.Errorf("a refused change has changed something: %+v", o)
	}
	if err := push.SetOptions(func(o *Options) { o.RecvHWM, o.HandshakeTimeout = 6, -1 }); err == nil || push.Options().RecvHWM != 5 {
		t.Errorf("an invalid change: %v, and RecvHWM is %d", err, push.Options().RecvHWM)
	}
	o := push.Options()
	o.RecvHWM = 7
	must(t, push.SetOptions(func(p *Options) { *p = o }))
	if push.Options().RecvHWM != 7 {
		t.Error("options that were copied as a whole did not take effect")
	}
}

// unjoin returns the errors that are joined in err, however deep.
func unjoin(err error) []error {
	if all, ok := err.(interface{ Unwrap() []error }); ok {
		var parts []error
		for _, e := range all.Unwrap() {
			parts = append(parts, unjoin(e)...)
		}
		return parts
	}
	return []error{err}
}

// TestLiveClosed: a closed socket has options and takes no others.
func TestLiveClosed(t *testing.T) {
	t.Parallel()
	push := open(t, NewPush, Options{SendHWM: 5})
	must(t, push.Close())
	err := push.SetOptions(func(*Options) { t.Error("change is called") })
	if !errors.Is(err, ErrClosed) || push.Options().SendHWM != 5 {
		t.Error(err, push.Options().SendHWM)
	}
}

// TestLiveCopies: neither the result of Options nor the argument of SetOptions shares
// memory with the socket.
func TestLiveCopies(t *testing.T) {
	t.Parallel()
	dealer := open(t, NewDealer, Options{Identity: []byte("one"), Metadata: map[string]string{"X-A": "1"}})
	o := dealer.Options()
	o.Identity[0], o.Metadata["X-A"] = 'x', "x"
	name, properties := []byte("two"), map[string]string{"X-A": "2"}
	must(t, dealer.SetOptions(func(o *Options) {
		if string(o.Identity) != "one" || o.Metadata["X-A"] != "1" {
			t.Errorf("%q %v", o.Identity, o.Metadata)
		}
		o.Identity, o.Metadata = name, properties
	}))
	name[0], properties["X-A"] = 'x', "x"
	for range 2 {
		if o := dealer.Options(); string(o.Identity) != "two" || o.Metadata["X-A"] != "2" {
			t.Errorf("%q %v", o.Identity, o.Metadata)
		}
		must(t, dealer.SetOptions(func(o *Options) { o.SendHWM = 3 }))
	}
}

// TestLiveDefaults: a default that depends on another option follows it as long as it
// is not set itself, and "no limit" is shown as it is set.
func TestLiveDefaults(t *testing.T) {
	t.Parallel()
	push := open(t, NewPush, Options{SendHWM: -1})
	for _, d := range []time.Duration{time.Second, time.Minute} {
		must(t, push.SetOptions(func(o *Options) { o.HeartbeatInterval = d }))
		if o := push.Options(); o.HeartbeatTimeout != d || o.SendHWM != -1 {
			t.Error(o.HeartbeatTimeout, o.SendHWM)
		}
	}
	must(t, push.SetOptions(func(o *Options) { o.HeartbeatTimeout = time.Hour }))
	must(t, push.SetOptions(func(o *Options) { o.HeartbeatInterval = time.Second }))
	if o := push.Options(); o.HeartbeatTimeout != time.Hour {
		t.Error(o.HeartbeatTimeout)
	}
	xpub := open(t, NewXPub, Options{})
	must(t, xpub.SetOptions(func(o *Options) { o.XPubManualLastValue, o.XPubVerboser = true, true }))
	must(t, xpub.SetOptions(func(o *Options) { o.XPubManualLastValue, o.XPubVerboser = false, false }))
	if o := xpub.Options(); o.XPubManual || o.XPubVerbose {
		t.Errorf("%v %v", o.XPubManual, o.XPubVerbose)
	}
	client, server := zmtp.SecretKey{1}, zmtp.SecretKey{2}
	must(t, push.SetOptions(func(o *Options) { o.Security = Security{CurveServer: true, CurveSecretKey: client} }))
	must(t, push.SetOptions(func(o *Options) { o.Security.CurveSecretKey = server }))
	if o := push.Options(); o.Security.CurvePublicKey != server.Public() {
		t.Error("the public key does not follow the secret key")
	}
}

// blocked starts a send call that has to wait, and returns its result.
func blocked(t *testing.T, send func(ctx context.Context) error, full func() bool) <-chan error {
	t.Helper()
	done := make(chan error, 1)
	ctx := testContext(t)
	go func() { done <- send(ctx) }()
	eventually(t, "the call waits", full)
	return done
}

// wantDone waits for the result of a call.
func wantDone(t *testing.T, done <-chan error) {
	t.Helper()
	within(t, "the call returns", func() { must(t, <-done) })
}

// roomWanted returns a function that reports whether a call waits for room in the only
// pipe, or in the balancer.
func roomWanted(s *socket, lb *route.Balancer) func() bool {
	return func() bool {
		if lb != nil {
			_, waiting := lb.Status()
			return waiting > 0
		}
		return s.core.Pipes()[0].Out.Status().Waiting > 0
	}
}

// TestLiveSendHWM: a higher mark lets waiting send calls go on, for any kind of room, and
// a lower one takes effect when the queue has drained.
func TestLiveSendHWM(t *testing.T) {
	t.Parallel()
	raise := func(o *Options) { o.SendHWM = 5 }
	for name, test := range map[string]func(t *testing.T){
		"PUSH": func(t *testing.T) {
			push := open(t, NewPush, Options{SendHWM: 2, Linger: LingerNone, Inproc: new(Inproc)})
			must(t, push.Connect("inproc://nobody"))
			if n := fill(t, push.TrySend, []byte("m")); n != 2 {
				t.Errorf("%d messages fit", n)
			}
			done := blocked(t, func(ctx context.Context) error { return push.Send(ctx, []byte("x")) }, roomWanted(&push.socket, &push.balancer))
			must(t, push.SetOptions(raise))
			wantDone(t, done)
			if n := fill(t, push.TrySend, []byte("m")); n != 2 {
				t.Errorf("%d more messages fit", n)
			}
		},
		"PUSH, bytes": func(t *testing.T) {
			push := open(t, NewPush, Options{SendHWMBytes: 10, Linger: LingerNone, Inproc: new(Inproc)})
			must(t, push.Connect("inproc://nobody"))
			must(t, push.TrySend(make([]byte, 20)))
			done := blocked(t, func(ctx context.Context) error { return push.Send(ctx, []byte("x")) }, roomWanted(&push.socket, &push.balancer))
			must(t, push.SetOptions(func(o *Options) { o.SendHWMBytes = 1000 }))
			wantDone(t, done)
		},
		"ROUTER": func(t *testing.T) {
			router := open(t, NewRouter, Options{SendHWM: 2, Mandatory: true, Linger: LingerNone, Inproc: new(Inproc)})
			must(t, router.ConnectAs("inproc://nobody", []byte("a")))
			fill(t, router.TrySend, []byte("a"), []byte("m"))
			done := blocked(t, func(ctx context.Context) error { return router.Send(ctx, []byte("a"), []byte("x")) }, roomWanted(&router.socket, nil))
			must(t, router.SetOptions(raise))
			wantDone(t, done)
		},
		"PUB": func(t *testing.T) {
			pub := bind(t, NewPub, Options{SendHWM: 2, FullPolicy: PolicyBlock, Linger: LingerNone})
			r := stuck(t, pub)
			_ = r
			body := make([]byte, 1<<20)
			fill(t, pub.TrySend, body)
			done := blocked(t, func(ctx context.Context) error { return pub.Send(ctx, body) }, roomWanted(&pub.socket, nil))
			must(t, pub.SetOptions(raise))
			wantDone(t, done)
		},
		"REQ": func(t *testing.T) {
			req := open(t, NewReq, Options{SendHWM: 1, ReqRelaxed: true, Linger: LingerNone, Inproc: new(Inproc)})
			must(t, req.Connect("inproc://nobody"))
			fill(t, req.TrySend, []byte("m"))
			done := blocked(t, func(ctx context.Context) error { return req.Send(ctx, []byte("x")) }, roomWanted(&req.socket, &req.balancer))
			must(t, req.SetOptions(raise))
			wantDone(t, done)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t)
		})
	}
	t.Run("lower", func(t *testing.T) {
		t.Parallel()
		names := new(Inproc)
		push := open(t, NewPush, Options{SendHWM: 100, Linger: LingerNone, Inproc: names})
		must(t, push.Connect("inproc://a"))
		if n := fill(t, push.TrySend, []byte("m")); n != 100 {
			t.Errorf("%d messages fit", n)
		}
		must(t, push.SetOptions(func(o *Options) { o.SendHWM = 3 }))
		pull := open(t, NewPull, Options{RecvHWM: 2, Inproc: names})
		must(t, pull.Bind(testContext(t), "inproc://a"))
		for range 100 {
			_, err := pull.TryRecv()
			must(t, err)
		}
		if n := fill(t, push.TrySend, []byte("m")); n != 5 {
			t.Errorf("%d messages fit after the queue has drained, want 5", n)
		}
		must(t, pull.SetOptions(func(o *Options) { o.RecvHWM = 10 }))
		if n := fill(t, push.TrySend, []byte("m")); n != 8 {
			t.Errorf("%d more messages fit with the receiver's higher mark, want 8", n)
		}
		// A pipe that is made later has the present marks.
		other := open(t, NewPull, Options{RecvHWM: 1, Inproc: names})
		must(t, other.Connect("inproc://b"))
		must(t, push.Bind(testContext(t), "inproc://b"))
		if n := fill(t, push.TrySend, []byte("m")); n != 4 {
			t.Errorf("%d messages fit for a later peer, want 4", n)
		}
	})
}

// TestLiveRecvHWM: a lower mark stops the reader, and a higher one lets it go on.
func TestLiveRecvHWM(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	pull := bind(t, NewPull, Options{RecvHWM: 50})
	push := dialled(t, NewPush, Options{SendHWM: 10, Linger: LingerNone, SendBuffer: 16 << 10}, pull.LastEndpoint())
	body := make([]byte, 1000)
	flood := make(chan error, 1)
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		for {
			if err := push.Send(ctx, body); err != nil {
				flood <- err
				return
			}
		}
	}()
	defer func() { cancel(); <-flood }()
	full := func() bool { return len(pull.core.Pipes()) > 0 && pull.stopped() }
	eventually(t, "the reader stops at the first mark", full)
	must(t, pull.SetOptions(func(o *Options) { o.RecvHWM = 100 }))
	eventually(t, "the reader stops at the higher mark", full)
	must(t, pull.SetOptions(func(o *Options) { o.RecvHWM = 10 }))
	for range 90 {
		_, err := pull.Recv(ctx)
		must(t, err)
	}
	// The reader goes on at half of the mark, and stops where the mark is if nothing is
	// received meanwhile.
	eventually(t, "the reader stops at the lower mark", func() bool {
		if full() {
			return true
		}
		_, _ = pull.TryRecv()
		return false
	})
}

// TestLiveLinger: Close waits as long as Linger says at that moment.
func TestLiveLinger(t *testing.T) {
	t.Parallel()
	push := open(t, NewPush, Options{Linger: LingerForever, Inproc: new(Inproc)})
	must(t, push.Connect("inproc://nobody"))
	must(t, push.TrySend([]byte("m")))
	must(t, push.SetOptions(func(o *Options) { o.Linger = time.Millisecond }))
	within(t, "Close", func() { push.Close() })
}

// TestLiveMandatory: from the change on, a message without a destination is an error,
// or not.
func TestLiveMandatory(t *testing.T) {
	t.Parallel()
	router := open(t, NewRouter, Options{})
	for _, mandatory := range []bool{false, true, false} {
		must(t, router.SetOptions(func(o *Options) { o.Mandatory = mandatory }))
		if err := router.TrySend([]byte("nobody"), []byte("m")); errors.Is(err, ErrUnroutable) != mandatory {
			t.Errorf("mandatory %v: %v", mandatory, err)
		}
	}
}

// TestLiveHandover: from the change on, a new connection takes over an identity.
func TestLiveHandover(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	router := bind(t, NewRouter, Options{})
	a := dialled(t, NewDealer, Options{Identity: []byte("me"), ReconnectInterval: -1}, router.LastEndpoint())
	says(t, a, "a")
	wants(t, router, "me a")
	must(t, router.SetOptions(func(o *Options) { o.Handover = true }))
	b := dialled(t, NewDealer, Options{Identity: []byte("me")}, router.LastEndpoint())
	says(t, b, "b")
	wants(t, router, "me b")
	must(t, router.Send(ctx, []byte("me"), []byte("for b")))
	wants(t, b, "for b")
}

// TestLiveXPubVerbose: from the change on, the application receives subscriptions that
// others have already.
func TestLiveXPubVerbose(t *testing.T) {
	t.Parallel()
	xpub := bind(t, NewXPub, Options{Inproc: new(Inproc)})
	names := xpub.Options().Inproc
	must(t, xpub.Bind(testContext(t), "inproc://x"))
	subscribe := func() *Sub {
		s := open(t, NewSub, Options{Inproc: names})
		must(t, s.Connect("inproc://x"))
		must(t, s.Subscribe("A"))
		return s
	}
	subscribe()
	wants(t, xpub, "\x01A")
	subscribe()
	must(t, xpub.SetOptions(func(o *Options) { o.XPubVerboser = true }))
	third := subscribe()
	wants(t, xpub, "\x01A")
	must(t, third.Unsubscribe("A"))
	wants(t, xpub, "\x00A")
	must(t, xpub.SetOptions(func(o *Options) { o.XPubVerboser, o.XPubVerbose = false, false }))
	subscribe()
	if m, err := xpub.TryRecv(); !errors.Is(err, ErrWouldBlock) {
		t.Errorf("%q %v", m, err)
	}
}

// TestLiveXPubManual: when the option is turned on, peers keep their subscriptions and
// the application decides over further ones; when it is turned off, they keep those
// that the application has applied.
func TestLiveXPubManual(t *testing.T) {
	t.Parallel()
	names := new(Inproc)
	xpub := open(t, NewXPub, Options{Inproc: names})
	must(t, xpub.Bind(testContext(t), "inproc://x"))
	sub := open(t, NewXSub, Options{Inproc: names}) // it filters nothing
	must(t, sub.Connect("inproc://x"))
	must(t, sub.Subscribe("A"))
	wants(t, xpub, "\x01A")
	if err := xpub.Subscribe("C"); !errors.Is(err, ErrNotManual) {
		t.Error(err)
	}
	must(t, xpub.SetOptions(func(o *Options) { o.XPubManual = true }))
	must(t, sub.Subscribe("B"))
	wants(t, xpub, "\x01B")
	must(t, xpub.Subscribe("C"))
	publish := func(want ...string) {
		t.Helper()
		for _, m := range []string{"A", "B", "C", "D"} {
			must(t, xpub.TrySend([]byte(m)))
		}
		if got := drained(t, sub); !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
	publish("A", "C")
	must(t, xpub.SetOptions(func(o *Options) { o.XPubManual = false }))
	must(t, sub.Subscribe("D"))
	wants(t, xpub, "\x01D")
	publish("A", "C", "D")
	must(t, xpub.SetOptions(func(o *Options) { o.XPubManual = true }))
	must(t, sub.Close())
	wants(t, xpub, "\x00A")
	wants(t, xpub, "\x00C")
	wants(t, xpub, "\x00D")
}

// TestLivePublisher: turning Block or WaitSubscriber off lets a waiting send call go
// on, and InvertMatching takes effect for the subscriptions that there are.
func TestLivePublisher(t *testing.T) {
	t.Parallel()
	t.Run("Block", func(t *testing.T) {
		t.Parallel()
		pub := bind(t, NewPub, Options{SendHWM: 2, FullPolicy: PolicyBlock, Linger: LingerNone})
		_ = stuck(t, pub)
		body := make([]byte, 1<<20)
		fill(t, pub.TrySend, body)
		done := blocked(t, func(ctx context.Context) error { return pub.Send(ctx, body) }, roomWanted(&pub.socket, nil))
		must(t, pub.SetOptions(func(o *Options) { o.FullPolicy = PolicyDrop }))
		wantDone(t, done)
		must(t, pub.SetOptions(func(o *Options) { o.FullPolicy = PolicyBlock }))
		if err := pub.TrySend(body); !errors.Is(err, ErrWouldBlock) {
			t.Error(err)
		}
	})
	t.Run("WaitSubscriber", func(t *testing.T) {
		t.Parallel()
		pub := open(t, NewPub, Options{WaitSubscriber: true})
		done := blocked(t, func(ctx context.Context) error { return pub.Send(ctx, []byte("m")) }, func() bool {
			return pub.fan.Status().Awaited
		})
		must(t, pub.SetOptions(func(o *Options) { o.WaitSubscriber = false }))
		wantDone(t, done)
	})
	t.Run("InvertMatching", func(t *testing.T) {
		t.Parallel()
		names := new(Inproc)
		pub := open(t, NewPub, Options{Inproc: names})
		must(t, pub.Bind(testContext(t), "inproc://x"))
		all := open(t, NewXSub, Options{Inproc: names})
		must(t, all.Connect("inproc://x"))
		must(t, all.Subscribe(""))
		some := open(t, NewXSub, Options{Inproc: names})
		must(t, some.Connect("inproc://x"))
		must(t, some.Subscribe("A"))
		for _, invert := range []bool{false, true, false} {
			must(t, pub.SetOptions(func(o *Options) { o.InvertMatching = invert }))
			for _, send := range []func() error{
				func() error { must(t, pub.TrySend([]byte("A"))); return pub.TrySend([]byte("B")) },
				func() error { return pub.sendWire(testContext(t), append(wire("A"), wire("B")...), 2, nil) },
			} {
				must(t, send())
				wantAll, wantSome := []string{"A", "B"}, []string{"A"}
				if invert {
					wantAll, wantSome = nil, []string{"B"}
				}
				if got := drained(t, all); !slices.Equal(got, wantAll) {
					t.Errorf("invert %v: %q, want %q", invert, got, wantAll)
				}
				if got := drained(t, some); !slices.Equal(got, wantSome) {
					t.Errorf("invert %v: %q, want %q", invert, got, wantSome)
				}
			}
		}
	})
	t.Run("SendTotalBytes", func(t *testing.T) {
		t.Parallel()
		pub := bind(t, NewPub, Options{Linger: LingerNone, SendHWM: -1})
		_ = stuck(t, pub)
		for range 20 {
			must(t, pub.TrySend(make([]byte, 1<<20)))
		}
		must(t, pub.SetOptions(func(o *Options) { o.SendTotalBytes = 1 << 20 }))
		for _, p := range pub.Peers() { // none, if its writer has taken more than that
			if p.QueuedBytes > 1<<20 {
				t.Errorf("%d bytes are queued", p.QueuedBytes)
			}
		}
	})
}

// TestLiveTimeouts: later calls keep to a new time limit, also where receive calls read
// the connection themselves.
func TestLiveTimeouts(t *testing.T) {
	t.Parallel()
	req, rep := couple(t, Options{})
	ctx := testContext(t)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		echoes(ctx, rep)
	}()
	for range 20 {
		ask(t, req, "x")
	}
	must(t, req.SetOptions(func(o *Options) { o.RecvTimeout, o.ReqRelaxed = time.Hour, true }))
	for range 20 {
		ask(t, req, "x")
	}
	must(t, rep.SetOptions(func(o *Options) { o.RecvTimeout = time.Millisecond }))
	must(t, req.SetOptions(func(o *Options) { o.RecvTimeout = 0 }))
	must(t, req.Send(ctx, []byte("x"))) // the call in progress keeps to the former limit
	within(t, "rep no longer answers", func() { <-ended })
	must(t, req.SetOptions(func(o *Options) { o.RecvTimeout = time.Millisecond }))
	eventually(t, "req gives up", func() bool {
		must(t, req.Send(ctx, []byte("x")))
		_, err := req.Recv(ctx)
		if err != nil && !errors.Is(err, ErrTimeout) {
			t.Fatal(err)
		}
		return err != nil // else it was a late reply to a former request
	})
	push := open(t, NewPush, Options{})
	must(t, push.SetOptions(func(o *Options) { o.SendTimeout = time.Millisecond }))
	if err := push.Send(ctx, []byte("m")); !errors.Is(err, ErrTimeout) {
		t.Error(err)
	}
}

// echoes answers requests until a call fails.
func echoes(ctx context.Context, rep *Rep) {
	for {
		m, err := rep.Recv(ctx)
		if err != nil || rep.Send(ctx, m...) != nil {
			return
		}
	}
}

// TestLiveConnections: options agreed upon at the beginning of a connection apply to
// later connections, and not to existing ones.
func TestLiveConnections(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	router := bind(t, NewRouter, Options{})
	dealer := dialled(t, NewDealer, Options{Identity: []byte("one")}, router.LastEndpoint())
	says(t, dealer, "m")
	wants(t, router, "one m")
	_, peer := lastPeer(t, router, dealer)
	must(t, dealer.SetOptions(func(o *Options) {
		o.Identity, o.Metadata = []byte("two"), map[string]string{"X-Name": "second"}
	}))
	must(t, router.SetOptions(func(o *Options) {
		o.MaxMessageSize, o.DisconnectMessage, o.HeartbeatInterval = 100, []byte("bye"), time.Minute
	}))
	if err := router.Send(ctx, []byte("one"), make([]byte, 200)); !errors.Is(err, ErrTooLarge) {
		t.Error(err)
	}
	must(t, dealer.Send(ctx, make([]byte, 200))) // this connection began with the old limit
	m, err := router.Recv(ctx)
	must(t, err)
	if len(m[1]) != 200 {
		t.Errorf("%d bytes", len(m[1]))
	}
	peer.Disconnect(nil) // no DisconnectMessage for it
	eventually(t, "the next connection has the new options", func() bool {
		must(t, dealer.Send(ctx, []byte("again"))) // the first one may go down with the old connection
		m, peer, err := router.RecvFrom(queue.NoWait)
		if err != nil {
			return false
		}
		if string(m[1]) != "again" {
			t.Fatalf("%q", m)
		}
		name, _ := peer.Property("X-Name")
		return string(m[0]) == "two" && name == "second"
	})
	for {
		must(t, dealer.Send(ctx, make([]byte, 200))) // too large for this connection
		m, err := router.Recv(ctx)
		must(t, err)
		if string(m[1]) == "bye" {
			break
		}
		if string(m[1]) != "again" {
			t.Fatalf("%q", m)
		}
	}
}

// lastPeer sends a message and returns it with the peer that it came from.
func lastPeer(t *testing.T, router *Router, dealer *Dealer) (Message, *Peer) {
	t.Helper()
	says(t, dealer, "who")
	m, peer, err := router.RecvFrom(testContext(t))
	must(t, err)
	return m, peer
}

// TestLiveSecurity: a server takes another key for later connections, and goes on with
// those that there are.
func TestLiveSecurity(t *testing.T) {
	t.Parallel()
	first, second, mine := zmtp.SecretKey{1}, zmtp.SecretKey{2}, zmtp.SecretKey{3}
	server := bind(t, NewPull, Options{Security: Security{CurveServer: true, CurveSecretKey: first}})
	client := func(k zmtp.SecretKey) Options {
		return Options{Security: Security{CurveSecretKey: mine, CurveServerKey: k.Public()}}
	}
	a := dialled(t, NewPush, client(first), server.LastEndpoint())
	says(t, a, "a")
	wants(t, server, "a")
	must(t, server.SetOptions(func(o *Options) { o.Security.CurveSecretKey = second }))
	b := dialled(t, NewPush, client(second), server.LastEndpoint())
	says(t, b, "b")
	wants(t, server, "b")
	says(t, a, "a again")
	wants(t, server, "a again")
	idle := open(t, NewPull, Options{}) // formatting a socket that works would be a race
	must(t, idle.SetOptions(func(o *Options) { o.Security = Security{CurveServer: true, CurveSecretKey: second} }))
	if strings.Contains(fmt.Sprintf("%v %+v", idle, idle), fmt.Sprint(second[:])) {
		t.Error("a socket shows its key")
	}
}

// TestLiveImmediate: the option applies to later endpoints.
func TestLiveImmediate(t *testing.T) {
	t.Parallel()
	names := new(Inproc)
	push := open(t, NewPush, Options{Immediate: true, Linger: LingerNone, Inproc: names})
	must(t, push.Connect("inproc://a"))
	if err := push.TrySend([]byte("m")); !errors.Is(err, ErrWouldBlock) {
		t.Error(err)
	}
	must(t, push.SetOptions(func(o *Options) { o.Immediate = false }))
	if err := push.TrySend([]byte("m")); !errors.Is(err, ErrWouldBlock) {
		t.Error(err)
	}
	must(t, push.Connect("inproc://b"))
	must(t, push.TrySend([]byte("m")))
}

// TestLiveReqCorrelate: the reply to a request is the one that fits how the request was
// sent.
func TestLiveReqCorrelate(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	req, rep := couple(t, Options{})
	for _, correlate := range []bool{true, false} {
		must(t, req.Send(ctx, []byte("x")))
		must(t, req.SetOptions(func(o *Options) { o.ReqCorrelate = correlate }))
		m, err := rep.Recv(ctx)
		must(t, err)
		must(t, rep.Send(ctx, m...))
		wants(t, req, "x")
	}
}

// TestLiveMaxConnections: a new limit applies to the next connection.
func TestLiveMaxConnections(t *testing.T) {
	t.Parallel()
	events := NewMonitorChan(100)
	pull := bind(t, NewPull, Options{MaxConnections: 1, Monitor: events.Tell})
	a := dialled(t, NewPush, Options{}, pull.LastEndpoint())
	says(t, a, "a")
	wants(t, pull, "a")
	b := dialled(t, NewPush, Options{ReconnectInterval: 10 * time.Millisecond}, pull.LastEndpoint())
	within(t, "the second connection is refused", func() {
		for e := range events.Events() {
			if errors.Is(e.Err, ErrTooManyConnections) {
				return
			}
		}
	})
	must(t, pull.SetOptions(func(o *Options) { o.MaxConnections = 2 }))
	says(t, b, "b")
	wants(t, pull, "b")
}

// TestLiveConcurrent: options change while messages are sent and received, connections
// come and go, and nothing is lost; for the race detector.
func TestLiveConcurrent(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	const messages = 3000
	names := new(Inproc)
	pull := bind(t, NewPull, Options{Inproc: names})
	must(t, pull.Bind(ctx, "inproc://p"))
	pushes := []*Push{open(t, NewPush, Options{}), open(t, NewPush, Options{Inproc: names})}
	must(t, pushes[0].Connect(tcpEndpoint(t, &pull.socket)))
	must(t, pushes[1].Connect("inproc://p"))
	router := bind(t, NewRouter, Options{})
	xpub := bind(t, NewXPub, Options{FullPolicy: PolicyBlock})
	ended, end := context.WithCancel(ctx)
	defer end()
	var wg, setters sync.WaitGroup
	sending := func(o *Options, n int) {
		o.SendHWM, o.SendTimeout, o.Immediate = 1+n%7*10, time.Duration(n%3)*time.Hour, n%2 == 0
	}
	for s, change := range map[adjustable]func(o *Options, n int){
		pull:      func(o *Options, n int) { o.RecvHWM, o.RecvTimeout = 1+n%5*10, time.Duration(n%2)*time.Hour },
		pushes[0]: sending,
		pushes[1]: sending,
		router: func(o *Options, n int) {
			o.Mandatory, o.Handover, o.SendTotalBytes = n%2 == 0, n%3 == 0, n%3*1000
		},
		xpub: func(o *Options, n int) {
			o.XPubVerbose, o.XPubManual, o.InvertMatching = n%2 == 0, n%3 == 0, n%4 == 0
			o.FullPolicy, o.SendTotalBytes = Policy(n%3), n%2*1000
		},
	} {
		setters.Go(func() {
			for n := 0; ended.Err() == nil; n++ {
				err := s.SetOptions(func(o *Options) {
					change(o, n)
					o.MaxMessageSize, o.MaxHandshakes = int64(1000+n), 10+n%3
					o.HeartbeatInterval = time.Duration(n%2) * time.Minute
				})
				if err != nil {
					t.Error(err)
					return
				}
				_ = s.Options()
				time.Sleep(50 * time.Microsecond)
			}
		})
	}
	for _, push := range pushes {
		wg.Go(func() {
			for i := range messages {
				if err := push.Send(ctx, fmt.Append(nil, i)); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Go(func() {
		for range messages * len(pushes) {
			if _, err := pull.Recv(ctx); err != nil {
				t.Error(err)
				return
			}
		}
	})
	wg.Go(func() {
		for range 20 {
			d := open(t, NewDealer, Options{Identity: []byte("same"), Linger: LingerNone})
			s := open(t, NewSub, Options{})
			for _, err := range []error{
				d.Connect(tcpEndpoint(t, &router.socket)), s.Connect(tcpEndpoint(t, &xpub.socket)), s.Subscribe("A"),
				d.Send(ctx, []byte("m")), d.Close(), s.Close(),
			} {
				if err != nil {
					t.Error(err)
				}
			}
			_ = xpub.TrySend([]byte("A"))
			_, _ = xpub.TryRecv()
			_ = router.TrySend([]byte("same"), []byte("m"))
			_, _ = router.TryRecv()
		}
	})
	within(t, "all messages arrive", wg.Wait)
	end()
	setters.Wait()
}

// tcpEndpoint returns the tcp endpoint to which a socket is bound.
func tcpEndpoint(t *testing.T, s *socket) string {
	t.Helper()
	for _, e := range s.Endpoints() {
		if e.State == EndpointBound && strings.HasPrefix(e.Endpoint, "tcp:") {
			return e.Endpoint
		}
	}
	t.Fatal("not bound to tcp")
	return ""
}
