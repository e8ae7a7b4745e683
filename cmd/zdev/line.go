package main

import (
	"encoding/base64"
	"fmt"
	"strconv"
	"unicode/utf8"

	"clustermap/internal/command"
	"clustermap/internal/jsonline"
	"clustermap/patterns/espresso"
)

// shownFrame is the maximum number of bytes of a frame in a line of text.
const shownFrame = 64

const eventTime = "15:04:05.000000"

// appendEventText appends an event of a tap as a line of text: time, side, operation or
// size, and the topic or the frames.
func appendEventText(dst []byte, e *espresso.Event) []byte {
	dst = e.Time.AppendFormat(dst, eventTime)
	switch e.Op {
	case espresso.OpLost:
		return fmt.Appendf(dst, " -        lost        %d messages of %d bytes: the reader was too slow\n", e.Lost, e.LostBytes)
	case espresso.OpSubscribe, espresso.OpUnsubscribe:
		dst = fmt.Appendf(dst, " %-8v %-12v", e.From, e.Op)
		return append(command.AppendPlain(dst, e.Topic(), true), '\n')
	}
	dst = fmt.Appendf(dst, " %-8v %-11s", e.From, strconv.Itoa(e.Size())+" B")
	for i, f := range e.Frames {
		dst = append(dst, ' ')
		if i < e.Envelope {
			dst = append(dst, '[')
		}
		if len(f) > shownFrame {
			dst = append(strconv.AppendQuote(dst, string(f[:shownFrame])), "…"...)
		} else {
			dst = command.AppendPlain(dst, f, false)
		}
		if i < e.Envelope {
			dst = append(dst, ']')
		}
	}
	return append(dst, '\n')
}

// appendEventJSON appends an event of a tap as a JSON line.
func appendEventJSON(dst []byte, e *espresso.Event) []byte {
	dst = append(dst, `{"time":"`...)
	dst = e.Time.UTC().AppendFormat(dst, "2006-01-02T15:04:05.000000000Z07:00")
	dst = append(dst, `","op":"`...)
	dst = append(dst, e.Op.String()...)
	dst = append(dst, '"', ',')
	if e.Op == espresso.OpLost {
		dst = append(jsonline.AppendNumber(dst, "messages", int64(e.Lost)), ',')
		return append(jsonline.AppendNumber(dst, "bytes", int64(e.LostBytes)), '}', '\n')
	}
	dst = append(dst, `"from":"`...)
	dst = append(dst, e.From.String()...)
	dst = append(dst, '"', ',')
	dst = jsonline.AppendField(dst, "topic", e.Topic())
	if e.Op == espresso.OpMessage {
		dst = append(dst, ',')
		dst = jsonline.AppendNumber(dst, "size", int64(e.Size()))
		if e.Envelope > 0 {
			dst = append(dst, ',')
			dst = jsonline.AppendNumber(dst, "envelope", int64(e.Envelope))
		}
		dst = appendJSONFrames(append(dst, ','), e.Frames)
	}
	return append(dst, '}', '\n')
}

// appendJSONFrames appends "frames":["…",…], or "frames_base64" if not all frames are
// UTF-8.
func appendJSONFrames(dst []byte, frames [][]byte) []byte {
	text := true
	for _, f := range frames {
		text = text && utf8.Valid(f)
	}
	if text {
		dst = append(dst, `"frames":[`...)
	} else {
		dst = append(dst, `"frames_base64":[`...)
	}
	for i, f := range frames {
		if i > 0 {
			dst = append(dst, ',')
		}
		if text {
			dst = jsonline.AppendString(dst, f)
		} else {
			dst = append(dst, '"')
			dst = append(base64.StdEncoding.AppendEncode(dst, f), '"')
		}
	}
	return append(dst, ']')
}
