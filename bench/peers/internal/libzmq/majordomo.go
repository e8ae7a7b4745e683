package libzmq

/*
#include <zmq.h>
#include "majordomo.h"
*/
import "C"

import (
	"fmt"
	"runtime"
)

// RunMajordomo binds a broker of MDP/0.1 in the design of the guide and runs it until
// it fails. ready is called with the endpoint.
func RunMajordomo(endpoint string, ready func(endpoint string)) error {
	runtime.LockOSThread()
	s, err := NewContext().Socket(ROUTER)
	if err != nil {
		return err
	}
	at, err := s.Bind(endpoint)
	if err != nil {
		return err
	}
	ready(at)
	return fmt.Errorf("the broker ended: %w", result("zmq_poll", C.majordomo_broker(s.p)))
}
