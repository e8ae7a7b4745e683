package lastvalue

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"clustermap/zmtp"
)

// model is the expected content of values: topics, least recently updated first.
type model struct {
	topics   []string
	messages map[string][]byte
	at       map[string]time.Duration
}

func (m *model) drop(topic string) {
	if i := slices.Index(m.topics, topic); i >= 0 {
		m.topics = slices.Delete(m.topics, i, i+1)
		delete(m.messages, topic)
	}
}

// check compares values with the model.
func (m *model) check(t *testing.T, v *values) {
	t.Helper()
	if v.len() != len(m.topics) || v.store.Len() != len(m.topics) {
		t.Fatalf("%d topics in the tree and %d in the store, want %d", v.len(), v.store.Len(), len(m.topics))
	}
	var list []string
	for n := v.entries[0].newer; n != 0; n = v.entries[n].newer {
		list = append(list, v.entries[n].topic)
	}
	if !slices.Equal(list, m.topics) {
		t.Fatalf("in order of their updates: %q, want %q", list, m.topics)
	}
	sorted := slices.Sorted(slices.Values(m.topics))
	for _, prefix := range []string{"", "1", "12", "2", "x"} {
		from := prefix + []string{"", "3", "~"}[rand.IntN(3)]
		var got, want []string
		v.ascend(prefix, from, func(e *entry) bool {
			got = append(got, e.topic)
			return true
		})
		for _, topic := range sorted {
			if strings.HasPrefix(topic, prefix) && topic >= from {
				want = append(want, topic)
			}
		}
		if !slices.Equal(got, want) {
			t.Fatalf("%q from %q: %q, want %q", prefix, from, got, want)
		}
	}
	for topic, message := range m.messages {
		if got := v.append(nil, []byte(topic)); string(got) != string(message) {
			t.Fatalf("%q is %q, want %q", topic, got, message)
		}
	}
}

// TestValuesModel compares values with a simple model over random updates, with bounds
// and expiry.
func TestValuesModel(t *testing.T) {
	t.Parallel()
	const maxTopics, expiry = 40, 100
	var v values
	v.init(Options{MaxTopics: maxTopics, MaxBytes: 1 << 20, Expiry: expiry})
	m := &model{messages: map[string][]byte{}, at: map[string]time.Duration{}}
	now := time.Duration(0)
	for step := range 6000 {
		if rand.IntN(200) == 0 {
			now += expiry
		} else {
			now += time.Duration(rand.IntN(4))
		}
		v.expire(now)
		for len(m.topics) > 0 && now-m.at[m.topics[0]] >= expiry {
			m.drop(m.topics[0])
		}
		topic := fmt.Sprint(rand.IntN(60))
		message := zmtp.AppendMessage(nil, []byte(topic), make([]byte, rand.IntN(300)), []byte(fmt.Sprint(step)))
		v.put([]byte(topic), message, now)
		m.drop(topic)
		m.topics = append(m.topics, topic)
		m.messages[topic], m.at[topic] = message, now
		if len(m.topics) > maxTopics {
			m.drop(m.topics[0])
		}
		if step%20 == 0 {
			v.tidy()
			m.check(t, &v)
		}
	}
	v.expire(now + expiry)
	*m = model{}
	m.check(t, &v)
	if v.bytes() != 0 {
		t.Errorf("%d bytes are left", v.bytes())
	}
}

// TestValuesBytes: values stays within MaxBytes. The least recently updated topics are
// removed first.
func TestValuesBytes(t *testing.T) {
	t.Parallel()
	const maxBytes = 100_000
	var v values
	v.init(Options{MaxTopics: 1 << 20, MaxBytes: maxBytes})
	put := func(topic string, size int) {
		v.put([]byte(topic), zmtp.AppendMessage(nil, []byte(topic), make([]byte, size)), 0)
	}
	put("kept", 100)
	for n := range 3000 {
		put(fmt.Sprint(n), rand.IntN(2000))
		put("kept", 100)
		if v.bytes() > maxBytes {
			t.Fatalf("%d bytes", v.bytes())
		}
	}
	if v.find([]byte("kept")) == 0 || v.find([]byte("2999")) == 0 || v.find([]byte("0")) != 0 || v.evicted < 2500 {
		t.Errorf("the wrong topics were forgotten, of %d", v.evicted)
	}
	// After too large a message, the topic has no last value, not even an older one.
	put("kept", maxBytes)
	if v.find([]byte("kept")) != 0 || v.tooLarge != 1 {
		t.Error("an older message of a topic was kept")
	}
	put("all", maxBytes-200)
	if v.len() != 1 || v.find([]byte("all")) == 0 {
		t.Errorf("%d topics", v.len())
	}
	if n := v.store.Stats(); n.LogBytes+n.IdleBytes > 8*maxBytes+(4<<20) {
		t.Errorf("the log has %d bytes, and %d idle", n.LogBytes, n.IdleBytes)
	}
}
