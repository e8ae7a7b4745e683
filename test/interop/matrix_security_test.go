package interop

import (
	"encoding/base64"
	"sync"

	"clustermap/sockets"
	"clustermap/zmtp"
)

// role is the part that a socket plays in a security mechanism.
type role struct {
	mechanism string
	server    bool
}

var roles = []role{{"NULL", false}, {"PLAIN", false}, {"PLAIN", true}, {"CURVE", false}, {"CURVE", true}}

func (r role) String() string {
	switch {
	case r.mechanism == "NULL":
		return r.mechanism
	case r.server:
		return r.mechanism + " server"
	}
	return r.mechanism + " client"
}

// fault is the fault of a client.
type fault string

const (
	noFault       fault = ""
	wrongPassword fault = "wrong password"
	wrongServer   fault = "wrong server key"
	wrongClient   fault = "client key not allowed"
)

// security is how a link is secured.
type security struct {
	ours, theirs role
	fault        fault
}

func (s security) String() string {
	text := "we are " + s.ours.String()
	if s.ours.mechanism != s.theirs.mechanism {
		text += ", they " + s.theirs.String()
	}
	if s.fault != noFault {
		text += ", " + string(s.fault)
	}
	return text
}

// fits says whether two roles belong together.
func fits(a, b role) bool {
	return a.mechanism == b.mechanism && (a.server != b.server || a.mechanism == "NULL")
}

// securities lists the roles of both sides for which wanted holds.
func securities(f fault, wanted func(ours, theirs role) bool) (all []security) {
	for _, a := range roles {
		for _, b := range roles {
			if wanted(a, b) {
				all = append(all, security{a, b, f})
			}
		}
	}
	return all
}

const (
	matrixUser     = "admin"
	matrixPassword = "secret"
)

// matrixKeys are the keys of both sides, and of an unknown client.
var matrixKeys = sync.OnceValue(func() (k struct{ ours, theirs, stranger zmtp.KeyPair }) {
	k.ours, k.theirs, k.stranger = zmtp.GenerateKeyPair(), zmtp.GenerateKeyPair(), zmtp.GenerateKeyPair()
	return k
})

// credentialArguments tells the program which clients to let in.
func credentialArguments() []string {
	key := matrixKeys().ours.Public
	return []string{"--user", matrixUser, "--password", matrixPassword, "--allow=" + base64.StdEncoding.EncodeToString(key[:])}
}

// password, keys and server are a client's, with the fault it has.

func (f fault) password() string {
	if f == wrongPassword {
		return "guess"
	}
	return matrixPassword
}

func (f fault) keys(own zmtp.KeyPair) zmtp.KeyPair {
	if f == wrongClient {
		return matrixKeys().stranger
	}
	return own
}

func (f fault) server(key zmtp.PublicKey) zmtp.PublicKey {
	if f == wrongServer {
		return matrixKeys().stranger.Public
	}
	return key
}

// options gives our socket the role.
func (r role) options(o *sockets.Options, f fault) {
	s, keys := &o.Security, matrixKeys()
	switch r.mechanism {
	case "PLAIN":
		if r.server {
			s.PlainServer = true
			s.Authenticate = sockets.AllowUsers(map[string]string{matrixUser: matrixPassword})
		} else {
			s.PlainUsername, s.PlainPassword = matrixUser, f.password()
		}
	case "CURVE":
		if r.server {
			s.CurveServer = true
			s.CurveSecretKey = keys.ours.Secret
			s.Authenticate = sockets.AllowKeys(keys.theirs.Public)
		} else {
			s.CurveSecretKey = f.keys(keys.ours).Secret
			s.CurveServerKey = f.server(keys.theirs.Public)
		}
	}
}

// theirOptions gives libzmq's socket the role, by the names of its options.
func (r role) theirOptions(f fault) map[string]any {
	keys := matrixKeys()
	switch {
	case r.mechanism == "PLAIN" && r.server:
		return map[string]any{"PLAIN_SERVER": 1}
	case r.mechanism == "PLAIN":
		return map[string]any{"PLAIN_USERNAME": matrixUser, "PLAIN_PASSWORD": f.password()}
	case r.mechanism == "CURVE" && r.server:
		return map[string]any{"CURVE_SERVER": 1, "CURVE_SECRETKEY": keys.theirs.Secret.Z85()}
	case r.mechanism == "CURVE":
		own := f.keys(keys.theirs)
		return map[string]any{
			"CURVE_PUBLICKEY": own.Public.String(), "CURVE_SECRETKEY": own.Secret.Z85(),
			"CURVE_SERVERKEY": f.server(keys.ours.Public).String(),
		}
	}
	return map[string]any{}
}
