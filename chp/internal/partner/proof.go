package partner

import (
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"maps"
	"slices"
	"sync"

	"clustermap/chp/internal/ports"
	"clustermap/sockets"
)

// Who follows an active server is sent the whole map and the identities of all clients.
// With CURVE it must have the other server's key. Otherwise it must prove that it is the
// server that answers at Options.PeerState:
//
//   - Each server makes a pair of keys for its run, and announces the public one
//     (propertyProofKey) on the connections of its state endpoint. The active server
//     connects to the configured endpoint, and so learns the other one's.
//   - It answers FOLLOW with CHALLENGE and a random nonce, and accepts the follower when
//     PROOF has the nonce's signature by that key and, with a secret, its MAC.
//
// A server of a version without this announces no key. It is accepted from the address
// of the state endpoint, without a secret, so that a pair can be upgraded by a handover.

// propertyProofKey announces the public key of a server's run, in hexadecimal.
const propertyProofKey = "X-CHP-Proof-Key"

// proofContext begins what a follower signs, so that the signature proves nothing else.
const proofContext = "chp follow 1\x00"

const nonceSize = 32

var (
	errStranger = errors.New("chp: the follower does not have the key of the other server of the pair")
	errUnproved = errors.New("chp: the follower is not the server at the other one's state endpoint, or has another secret")
	errUnknown  = errors.New("chp: nobody answers at the other server's state endpoint, so no follower can be told from a stranger")
	errLeft     = errors.New("chp: the follower left before it had proved who it is")
)

// proofs decides who may follow.
type proofs struct {
	*Options
	private ed25519.PrivateKey
	send    func(peer *sockets.Peer, wire []byte)
	linked  func() // is called when there is a link: examineAll has something to do

	mu         sync.Mutex
	link       *stateLink                   // to the other server's state endpoint; nil while it is unknown
	applicants map[*sockets.Peer]*applicant // one for each connection at most
}

// stateLink is the last connection to the other server's state endpoint.
type stateLink struct {
	peer   *sockets.Peer
	key    ed25519.PublicKey // that the server there has announced; nil for an earlier version
	remote string
	here   bool // it is on this machine
}

// applicant is a peer that has sent FOLLOW and has not proved yet who it is.
type applicant struct {
	accept func()
	nonce  []byte // of the CHALLENGE that was sent, or nil
	looks  int    // since then
}

func newKey() ed25519.PrivateKey {
	_, private, _ := ed25519.GenerateKey(rand.Reader) // never fails
	return private
}

func (p *proofs) public() ed25519.PublicKey { return p.private.Public().(ed25519.PublicKey) }

// prove returns the body of the PROOF that answers a nonce.
func (p *proofs) prove(nonce []byte) []byte {
	text := append([]byte(proofContext), nonce...)
	body := ed25519.Sign(p.private, text)
	if secret := p.Secret(); len(secret) > 0 {
		body = append(body, mac(secret, text, p.public())...)
	}
	return body
}

// proves reports whether the body of a PROOF answers a nonce.
func (p *proofs) proves(key ed25519.PublicKey, nonce, body []byte) bool {
	text := append([]byte(proofContext), nonce...)
	if len(key) != ed25519.PublicKeySize || len(body) < ed25519.SignatureSize || !ed25519.Verify(key, text, body[:ed25519.SignatureSize]) {
		return false
	}
	secret := p.Secret()
	return len(secret) == 0 || hmac.Equal(body[ed25519.SignatureSize:], mac(secret, text, key))
}

func mac(secret, text []byte, key ed25519.PublicKey) []byte {
	h := hmac.New(sha256.New, secret)
	h.Write(text) // never fails
	h.Write(key)
	return h.Sum(nil)
}

// watch notes connections to the other server's state endpoint. Those of its own endpoint
// come from a SUB and mean nothing: anyone can connect there.
func (p *proofs) watch(e sockets.Event) {
	switch {
	case e.Kind == sockets.EventHandshakeSucceeded && e.Peer.SocketType() != "SUB" && e.Peer.SocketType() != "XSUB":
		text, _ := e.Peer.Property(propertyProofKey)
		key, err := hex.DecodeString(text)
		if err != nil || len(key) != ed25519.PublicKeySize {
			key = nil
		}
		p.mu.Lock()
		p.link = &stateLink{e.Peer, key, e.Peer.RemoteAddr(), p.Local(e.Peer)}
		p.mu.Unlock()
		p.linked()
	case e.Kind == sockets.EventDisconnected:
		p.mu.Lock()
		if p.link != nil && p.link.peer == e.Peer && p.link.key == nil {
			p.link = nil // a key remains a proof, also while the servers cannot connect in this direction
		}
		p.mu.Unlock()
	}
}

// apply calls accept once a peer has proved who it is, which with CURVE it has; or refuses
// the peer.
func (p *proofs) apply(peer *sockets.Peer, accept func()) {
	if security := p.PeerSecurity(); !security.CurveServerKey.IsZero() {
		if key := peer.PublicKey(); key != security.CurveServerKey && !slices.Contains(security.CurveMoreServerKeys, key) {
			p.refuse(peer, errStranger)
			return
		}
		accept()
		return
	}
	c := &applicant{accept: accept}
	p.mu.Lock()
	_, twice := p.applicants[peer]
	if twice {
		delete(p.applicants, peer)
	} else {
		p.applicants[peer] = c
	}
	p.mu.Unlock()
	switch {
	case twice:
		p.refuse(peer, errFollower)
	case !peer.Stats().Connected: // its end was reported before
		p.forget(peer)
	default:
		p.examine(peer, c)
	}
}

// forget removes a peer whose connection has ended from the applicants.
func (p *proofs) forget(peer *sockets.Peer) {
	p.mu.Lock()
	_, unproved := p.applicants[peer]
	delete(p.applicants, peer)
	p.mu.Unlock()
	if unproved {
		p.refuse(peer, errLeft)
	}
}

// examine challenges an applicant, once there was a link to the other server.
func (p *proofs) examine(peer *sockets.Peer, c *applicant) {
	p.mu.Lock()
	link := p.link
	if p.applicants[peer] != c || link == nil || c.nonce != nil {
		p.mu.Unlock()
		return
	}
	if link.key != nil {
		c.nonce = make([]byte, nonceSize)
		rand.Read(c.nonce) // never fails
		p.mu.Unlock()
		p.send(peer, appendControl(nil, nameChallenge, c.nonce)) // if the peer does not read, the applicant ends with its time
		return
	}
	delete(p.applicants, peer)
	p.mu.Unlock()
	if len(p.Secret()) > 0 || !(link.here && p.Local(peer)) && !ports.SameHost(link.remote, peer.RemoteAddr()) {
		p.refuse(peer, errUnproved)
		return
	}
	p.Log.Warn("the other server is of an earlier version and cannot prove who it is; it is accepted by its address: upgrade it", "remote", peer.RemoteAddr())
	c.accept()
}

// proved handles a PROOF.
func (p *proofs) proved(peer *sockets.Peer, body []byte) {
	p.mu.Lock()
	c, link := p.applicants[peer], p.link
	delete(p.applicants, peer)
	p.mu.Unlock()
	if c == nil || c.nonce == nil || link == nil || !p.proves(link.key, c.nonce, body) {
		p.refuse(peer, errUnproved)
		return
	}
	c.accept()
}

// examineAll examines the applicants that wait for a link to the other server. look
// reports that the interval between looks has passed; applicants that are not proved within
// the time-out are refused.
func (p *proofs) examineAll(look bool) {
	p.mu.Lock()
	all := maps.Clone(p.applicants)
	var late []*sockets.Peer
	for peer, c := range all {
		if look {
			c.looks++
		}
		if c.looks > LooksPerTimeout {
			late = append(late, peer)
			delete(p.applicants, peer)
			delete(all, peer)
		}
	}
	err := errUnproved
	if p.link == nil {
		err = errUnknown
	}
	p.mu.Unlock()
	for _, peer := range late {
		p.refuse(peer, err)
	}
	for peer, c := range all {
		p.examine(peer, c)
	}
}

func (p *proofs) refuse(peer *sockets.Peer, err error) {
	p.PeerLog.Refused("refused a follower", peer, err)
	peer.Disconnect(err)
}
