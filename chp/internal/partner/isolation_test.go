package partner

import "testing"

// TestIsolation: a server holds updates while nothing arrives from anybody, and then until
// the other one has answered, or does not; once that is known, silence is not suspicious
// before the other one is heard again.
func TestIsolation(t *testing.T) {
	t.Parallel()
	var i isolation
	looks := func(n int, s observation) (asks int) {
		for range n {
			if i.look(s) {
				asks++
			}
		}
		return asks
	}
	heard, others, nothing, down := observation{heard: true}, observation{arrived: true}, observation{}, observation{down: true}
	expect := func(what string, holds bool) {
		t.Helper()
		if i.holds() != holds {
			t.Errorf("%s: holds %v", what, i.holds())
		}
	}
	looks(10*LooksPerTimeout, heard)
	looks(10*LooksPerTimeout, others)
	expect("only the other server is silent", false)
	looks(quietLooks-1, nothing)
	expect("everybody is silent for a moment", false)
	looks(1, nothing)
	expect("everybody is silent", true)
	if i.knows() {
		t.Error("it knows that the other server is away, though everybody is silent")
	}
	looks(100*LooksPerTimeout, nothing)
	expect("for long", true)
	if alone, ask := i.overdue(100 * LooksPerTimeout); alone || ask {
		t.Error("it goes on alone, or asks, while everybody is silent")
	}
	if n := looks(3, others); n != 1 {
		t.Errorf("the other server is asked %d times", n)
	}
	expect("something arrives", true)
	looks(10*LooksPerTimeout, nothing)
	expect("it has not answered yet", true)
	i.answered(false, false)
	expect("it does not answer", false)
	if !i.knows() {
		t.Error("it does not know that the other server does not answer")
	}
	looks(10*LooksPerTimeout, nothing)
	looks(1, others)
	expect("it has not answered before", false)

	looks(1, heard)
	looks(quietLooks, nothing)
	expect("everybody is silent again", true)
	looks(1, heard)
	expect("the other server is heard", false)
	looks(quietLooks, nothing)
	looks(1, others)
	i.answered(true, false)
	expect("it answers", false)
	if !i.knows() {
		t.Error("it does not know that the other server has answered")
	}
	looks(LooksPerTimeout, others)
	if i.knows() {
		t.Error("an answer counts for ever")
	}
	looks(quietLooks, nothing)
	looks(1, down)
	expect("its machine answers", false)
	looks(10*LooksPerTimeout, nothing)
	expect("and everybody is silent", false)

	// To go on alone a server asks once.
	i = isolation{}
	if !i.check() || i.check() || !i.holds() {
		t.Error("the other server is not asked once")
	}
	// While it is cut off itself the lack of an answer says nothing.
	looks(quietLooks, nothing)
	i.answered(false, false)
	expect("no answer, and nothing from others", true)
	if i.knows() {
		t.Error("it takes the other server for dead, though it may be cut off itself")
	}
	if n := looks(1, others); n != 1 {
		t.Errorf("when something arrives it asks %d times", n)
	}
	i.answered(false, false)
	expect("no answer, though others are heard", false)

	// While it waits for its own disk it reads nothing: that is not suspicious, and shows no
	// more than silence that others are heard.
	i = isolation{}
	blocked := observation{blocked: true}
	looks(1, others)
	looks(10*LooksPerTimeout, blocked)
	expect("its own disk is slow", false)
	if alone, ask := i.overdue(LooksPerTimeout + 1); alone || !ask {
		t.Error("it does not ask the other server while its own disk is slow")
	}
	looks(LooksPerTimeout/4, blocked)
	if ask := i.answered(false, false); ask || i.knows() {
		t.Error("it takes the other server for dead, though it has read nothing, because its own disk is slow")
	}
	looks(10*LooksPerTimeout, blocked)
	expect("no answer, and its own disk is slow", true)
	if n := looks(1, others); n != 1 {
		t.Errorf("when it reads again it asks %d times", n)
	}
	looks(1, others)
	i.answered(false, false)
	if expect("no answer, though others are heard again", false); !i.knows() {
		t.Error("it does not know that the other server does not answer, when its disk has caught up")
	}

	// A client that sends something now and then.
	i = isolation{}
	looks(quietLooks, nothing)
	looks(1, others)
	if ask := i.answered(false, false); ask || i.knows() {
		t.Error("it takes the other server for dead, though nothing has arrived since it was asked")
	}
	looks(1, others)
	i.answered(false, false)
	expect("no answer to a second question", false)

	// Others that were heard only after the question do not show that the other server
	// could have answered.
	i = isolation{}
	looks(quietLooks-1, nothing)
	i.check()
	looks(1, others)
	if ask := i.answered(false, false); !ask || !i.holds() {
		t.Error("the other server is not asked again")
	}
	looks(1, others)
	i.answered(false, false)
	expect("no answer to the second question", false)
	if !i.knows() {
		t.Error("it does not know that the other server does not answer")
	}
}
