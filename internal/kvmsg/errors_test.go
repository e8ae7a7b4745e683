package kvmsg

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

func TestMessageError(t *testing.T) {
	t.Parallel()
	err := fmt.Errorf("from 127.0.0.1: %w", ErrTTL)
	if !errors.Is(err, &MessageError{Reason: ReasonTTL}) || !errors.Is(err, ErrTTL) {
		t.Error("does not match its reason")
	}
	if errors.Is(err, &MessageError{Reason: ReasonKey}) || errors.Is(errKeyNUL, ErrKeyEmpty) {
		t.Error("matches another reason or detail")
	}
	if text := (&MessageError{Reason: ReasonKey}).Error(); text != "chp: message refused: key" {
		t.Errorf("reads %q", text)
	}
	seen := map[string]bool{}
	for r := range Reason(ReasonCount) {
		if seen[r.String()] || strings.HasPrefix(r.String(), "reason ") {
			t.Errorf("reason %d is called %q", uint8(r), r)
		}
		seen[r.String()] = true
	}
	if got := Reason(ReasonCount).String(); got != fmt.Sprint("reason ", ReasonCount) {
		t.Errorf("a reason that does not exist is called %q", got)
	}
}
