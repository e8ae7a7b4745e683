package sockets

// defaults implements pattern for a socket that receives every message. Socket
// types embed it and have methods of their own where they differ.
type defaults struct{}

func (defaults) added(*pipe)                                 {}
func (defaults) removed(*pipe)                               {}
func (defaults) roomy(*pipe)                                 {}
func (defaults) attach(*pipe, *Peer) error                   { return nil }
func (defaults) detach(*pipe, *Peer)                         {}
func (defaults) messages(*pipe, *Peer, *Batch) (bool, error) { return true, nil }
func (defaults) command(*pipe, *Peer, string, []byte) error  { return nil }
func (defaults) changed(was, now *Options)                   {}
func (defaults) traits() traits                              { return traits{maxMessage: maxMessage} }
