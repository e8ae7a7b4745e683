package zmtp

import (
	"bytes"
	"testing"
)

// side is one end of a conversation in memory.
type side struct {
	h    *Handshake
	sent []byte // all that h sent
	in   []byte // bytes that h has not consumed yet
	done bool
	err  error
}

// take passes the received bytes to the handshake of s. If there are credentials,
// it calls authenticate, which calls Accept or Deny.
func (s *side) take(authenticate func(*Handshake, Credentials) ([]byte, bool, error)) (out []byte) {
	for s.err == nil && !s.done {
		var n int
		var more []byte
		if c, waiting := s.h.Credentials(); waiting {
			more, s.done, s.err = authenticate(s.h, c)
			out = append(out, more...)
			continue
		}
		n, more, s.done, s.err = s.h.Step(s.in, nil)
		out = append(out, more...)
		clear(s.in[:n]) // nothing may keep it
		s.in = s.in[n:]
		if _, waiting := s.h.Credentials(); n == 0 && !waiting {
			break
		}
	}
	s.sent = append(s.sent, out...)
	return out
}

// admit accepts all credentials.
func admit(h *Handshake, _ Credentials) ([]byte, bool, error) { return h.Accept(nil, "", nil) }

// converse runs a handshake between a and b, in pieces of the given size, until
// neither sends more.
func converse(a, b *side, piece int, authenticate func(*Handshake, Credentials) ([]byte, bool, error)) {
	a.sent, b.sent = a.h.Start(nil), b.h.Start(nil)
	toA, toB := bytes.Clone(b.sent), bytes.Clone(a.sent)
	for len(toA)+len(toB) > 0 {
		n := min(piece, len(toA))
		a.in = append(bytes.Clone(a.in), toA[:n]...)
		toA = toA[n:]
		toB = append(toB, a.take(authenticate)...)
		n = min(piece, len(toB))
		b.in = append(bytes.Clone(b.in), toB[:n]...)
		toB = toB[n:]
		toA = append(toA, b.take(authenticate)...)
	}
}

// commands returns the commands of sent, which begins with a greeting, by name.
func commands(t *testing.T, sent []byte) map[string][]byte {
	t.Helper()
	found := map[string][]byte{}
	for sent = sent[GreetingSize:]; len(sent) > 0; {
		h, ok, _ := parseHeader(sent)
		if !ok || h.flags&FlagCommand == 0 {
			t.Fatalf("no command: %x", sent)
		}
		end := h.size + h.body
		c, err := ParseCommand(sent[h.size:end])
		if err != nil {
			t.Fatal(err)
		}
		found[string(c.Name)] = sent[:end:end]
		sent = sent[end:]
	}
	return found
}
