package sockets

import (
	"reflect"

	"clustermap/internal/option"
	"clustermap/zmtp"
)

// types is a set of socket types.
type types uint32

func typeSet(of ...zmtp.SocketType) (t types) {
	for _, k := range of {
		t |= 1 << k
	}
	return t
}

func (t types) has(k zmtp.SocketType) bool { return t&(1<<k) != 0 }

// Sets of socket types that share options.
var (
	everyType  = ^types(0)
	publishers = typeSet(zmtp.TypePub, zmtp.TypeXPub)
	onlyRouter = typeSet(zmtp.TypeRouter)
	onlyXPub   = typeSet(zmtp.TypeXPub)
	onlyReq    = typeSet(zmtp.TypeReq)

	// speakers speak ZMTP.
	speakers = everyType &^ typeSet(zmtp.TypeStream)

	// balancers choose the peer that gets a message.
	balancers = typeSet(zmtp.TypePair, zmtp.TypeDealer, zmtp.TypePush, zmtp.TypeReq)
	// queuers have a queue of messages for each peer.
	queuers = everyType &^ typeSet(zmtp.TypeSub, zmtp.TypePull)
	// waiters have a Send that can wait.
	waiters = balancers | publishers | typeSet(zmtp.TypeRouter, zmtp.TypeStream)
	// receivers have a queue of messages for the application.
	receivers = everyType &^ typeSet(zmtp.TypePub, zmtp.TypePush)
	// named announce an identity.
	named = typeSet(zmtp.TypeReq, zmtp.TypeDealer, zmtp.TypeRouter)
)

// optionTypes says which socket types use each field of Options. It has all fields;
// docs/OPTIONS.md shows the same in its section on the types.
var optionTypes = map[string]types{
	"Identity":               named,
	"SendHWM":                queuers,
	"RecvHWM":                receivers,
	"SendHWMBytes":           queuers | typeSet(zmtp.TypeSub), // whose subscriptions count
	"RecvHWMBytes":           receivers,
	"SendTotalBytes":         everyType &^ typeSet(zmtp.TypePair, zmtp.TypeReq, zmtp.TypePull),
	"RecvTotalBytes":         receivers,
	"SendBuffer":             everyType,
	"RecvBuffer":             everyType,
	"Linger":                 everyType,
	"ReconnectInterval":      everyType,
	"ReconnectIntervalMax":   everyType,
	"ReconnectStop":          everyType,
	"ConnectTimeout":         everyType,
	"Backlog":                everyType,
	"IPv6":                   everyType,
	"TOS":                    everyType,
	"KeepAlive":              everyType,
	"KeepAliveIdle":          everyType,
	"KeepAliveInterval":      everyType,
	"KeepAliveCount":         everyType,
	"BindToDevice":           everyType,
	"Dial":                   everyType,
	"Listen":                 everyType,
	"SOCKSProxy":             everyType,
	"SOCKSUser":              everyType,
	"SOCKSPassword":          everyType,
	"Security":               speakers,
	"Inproc":                 speakers,
	"HeartbeatInterval":      speakers,
	"HeartbeatTimeout":       speakers,
	"HeartbeatTTL":           speakers,
	"HandshakeTimeout":       everyType,
	"MinVersion":             speakers,
	"MaxHandshakes":          speakers,
	"MaxConnections":         everyType,
	"Operator":               everyType,
	"MaxMessageSize":         everyType,
	"MaxIncompleteBytes":     speakers &^ typeSet(zmtp.TypePush), // which accepts no large messages
	"MaxSubscriptions":       publishers,
	"MaxSubscriptionBytes":   publishers,
	"MaxTopicSize":           publishers,
	"Metadata":               speakers,
	"Mandatory":              onlyRouter,
	"FullPolicy":             publishers,
	"WaitSubscriber":         publishers,
	"SendTimeout":            waiters,
	"RecvTimeout":            receivers,
	"BusyPoll":               receivers &^ typeSet(zmtp.TypeStream),
	"Immediate":              balancers,
	"Conflate":               typeSet(zmtp.TypePush, zmtp.TypePull, zmtp.TypePub, zmtp.TypeSub, zmtp.TypeDealer),
	"Handover":               onlyRouter,
	"Notify":                 typeSet(zmtp.TypeRouter, zmtp.TypeStream),
	"ProbeRouter":            named,
	"ReqRelaxed":             onlyReq,
	"ReqCorrelate":           onlyReq,
	"XPubVerbose":            onlyXPub,
	"XPubVerboser":           onlyXPub,
	"XPubManual":             onlyXPub,
	"XPubManualLastValue":    onlyXPub,
	"WelcomeMessage":         publishers,
	"HelloMessage":           typeSet(zmtp.TypeDealer, zmtp.TypeRouter),
	"DisconnectMessage":      onlyRouter,
	"HiccupMessage":          typeSet(zmtp.TypeDealer),
	"OnlyFirstSubscribe":     publishers | typeSet(zmtp.TypeXSub),
	"InvertMatching":         publishers | typeSet(zmtp.TypeSub),
	"XSubVerboseUnsubscribe": typeSet(zmtp.TypeXSub),
	"Monitor":                everyType,
}

// foreign returns an [*OptionError] for each field that is set and that sockets of the
// given type do not use.
func (o *Options) foreign(kind zmtp.SocketType) (errs []error) {
	for f, v := range reflect.ValueOf(o).Elem().Fields() {
		if isSet(v) && !optionTypes[f.Name].has(kind) {
			errs = append(errs, option.New("sockets", f.Name, "%s", "does not apply to "+kind.String()))
		}
	}
	return errs
}

// isSet reports whether a field selects another value than its default.
func isSet(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Slice, reflect.Map:
		return v.Len() > 0
	}
	return !v.IsZero()
}
