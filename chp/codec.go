package chp

import "encoding/json"

// Codec encodes and decodes the values of a [View]. Its methods are called from several
// goroutines at the same time.
type Codec[T any] interface {
	// Marshal returns the encoded value, which must not be empty: in CHP an empty value
	// deletes its key.
	Marshal(value T) ([]byte, error)

	// Unmarshal decodes data into value, which is a new T. It must not keep or change
	// data.
	Unmarshal(data []byte, value *T) error
}

// JSONCodec encodes values as package encoding/json does.
type JSONCodec[T any] struct{}

// Marshal returns the JSON encoding of value.
func (JSONCodec[T]) Marshal(value T) ([]byte, error) { return json.Marshal(value) }

// Unmarshal decodes one JSON value.
func (JSONCodec[T]) Unmarshal(data []byte, value *T) error { return json.Unmarshal(data, value) }

// TextCodec is for values that are text, without an encoding.
type TextCodec[T ~string] struct{}

// Marshal returns the bytes of value.
func (TextCodec[T]) Marshal(value T) ([]byte, error) { return []byte(value), nil }

// Unmarshal stores data in value.
func (TextCodec[T]) Unmarshal(data []byte, value *T) error {
	*value = T(data)
	return nil
}
