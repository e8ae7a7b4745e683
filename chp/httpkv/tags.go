package httpkv

import (
	"net/http"
	"strconv"
	"strings"
)

// etag is the entity tag of a key whose last update has a sequence.
func etag(sequence int64) string {
	var space [24]byte
	return string(append(strconv.AppendInt(append(space[:0], '"'), sequence, 10), '"'))
}

// tags are what an If-Match or an If-None-Match names (RFC 9110, section 13.1).
type tags struct {
	given bool
	any   bool    // *
	list  []int64 // the sequences; tags that are none match no key
}

// parseTags parses the values of such a header. strong tells weak tags from others: they never match.
func parseTags(values []string, strong bool) (t tags, ok bool) {
	if len(values) == 0 {
		return t, true
	}
	t.given = true
	text := strings.Trim(strings.Join(values, ","), " \t")
	if text == "*" {
		t.any = true
		return t, true
	}
	for n := 0; ; n++ {
		text = strings.TrimLeft(text, " \t,")
		if text == "" {
			return t, n > 0
		}
		weak := strings.HasPrefix(text, "W/")
		text = strings.TrimPrefix(text, "W/")
		if n == maxETags || text == "" || text[0] != '"' {
			return t, false
		}
		end := strings.IndexByte(text[1:], '"')
		if end < 0 {
			return t, false
		}
		tag := text[1 : end+1]
		text = strings.TrimLeft(text[end+2:], " \t")
		if text != "" && text[0] != ',' {
			return t, false
		}
		// Each sequence has one form.
		if seq, err := strconv.ParseInt(tag, 10, 64); err == nil && seq > 0 && strconv.FormatInt(seq, 10) == tag && !(weak && strong) {
			t.list = append(t.list, seq)
		}
	}
}

// has reports whether the key with a sequence, 0 if it does not exist, is among the tags.
func (t *tags) has(sequence int64) bool {
	if sequence == 0 {
		return false
	}
	for _, s := range t.list {
		if s == sequence {
			return true
		}
	}
	return t.any
}

// conditions are those of a request.
type conditions struct{ match, none tags }

func (q *request) conditions() (c conditions, p *problem) {
	var ok, also bool
	c.match, ok = parseTags(q.Header["If-Match"], true)
	c.none, also = parseTags(q.Header["If-None-Match"], false)
	if !ok || !also {
		return c, trouble(http.StatusBadRequest, "bad-condition", "want * or a list of at most %d entity tags, such as \"7\", \"9\"", maxETags)
	}
	for _, name := range []string{"If-Modified-Since", "If-Unmodified-Since"} {
		if q.Method != http.MethodGet && q.Method != http.MethodHead && q.Header.Get(name) != "" {
			return c, trouble(http.StatusBadRequest, "bad-condition", "a key has no time of its own for %s", name)
		}
	}
	return c, nil
}

func (c *conditions) given() bool { return c.match.given || c.none.given }

// hold reports whether they hold for a key with a sequence, 0 if it does not exist.
func (c *conditions) hold(sequence int64) bool {
	return (!c.match.given || c.match.has(sequence)) && (!c.none.given || !c.none.has(sequence))
}
