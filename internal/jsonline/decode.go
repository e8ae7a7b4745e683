package jsonline

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"unicode/utf8"
)

// A FieldError is the error of a field's own decoder, which needs nothing said about it.
type FieldError struct{ Reason string }

func (e *FieldError) Error() string { return e.Reason }

// Decode decodes a line of JSON. The error says what is wrong with it, in words of what
// the lines are.
func Decode(line []byte, what string, into any) error {
	// encoding/json silently replaces bytes that are not UTF-8.
	if !utf8.Valid(line) {
		return errors.New("not UTF-8; use key_base64 or value_base64 for other bytes")
	}
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) {
			err = errors.New("the JSON object is cut off")
		}
		if plain := (*FieldError)(nil); errors.As(err, &plain) {
			return plain
		}
		if kind := (*json.UnmarshalTypeError)(nil); errors.As(err, &kind) {
			name := kind.Field[strings.LastIndexByte(kind.Field, '.')+1:]
			switch {
			case name == "":
				err = errors.New("not a JSON object")
			case kind.Type.Kind() == reflect.Float64:
				return fmt.Errorf("%s must be a number", name)
			case kind.Type.Kind() == reflect.Bool:
				return fmt.Errorf("%s must be true or false", name)
			default:
				return fmt.Errorf("%s must be a string", name)
			}
		}
		return fmt.Errorf("not a line of %s: %w", what, err)
	}
	if d.InputOffset() != int64(len(line)) {
		return fmt.Errorf("not a line of %s: text after the JSON object", what)
	}
	return nil
}
