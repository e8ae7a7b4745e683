// Package subscribe makes the SUB sockets of the patterns.
package subscribe

import (
	"errors"

	"clustermap/sockets"
)

// To returns a SUB that is subscribed to topics and connects to endpoints. After an error
// nothing is left.
func To(topics, endpoints []string, o sockets.Options) (*sockets.Sub, error) {
	sub, err := sockets.NewSub(o)
	if err != nil {
		return nil, err
	}
	for _, topic := range topics {
		err = errors.Join(err, sub.Subscribe(topic))
	}
	for _, endpoint := range endpoints {
		err = errors.Join(err, sub.Connect(endpoint))
	}
	if err != nil {
		return nil, errors.Join(err, sub.Close())
	}
	return sub, nil
}
