package kvjson

import (
	"errors"
	"fmt"
	"math"
	"time"

	"clustermap/chp"
	"clustermap/internal/jsonline"
	"clustermap/internal/kvmsg"
)

// AppendEntry appends an entry as a JSON line.
func AppendEntry(dst []byte, e chp.Entry) []byte {
	dst = jsonline.AppendField(append(dst, '{'), "key", e.Key)
	dst = jsonline.AppendField(append(dst, ','), "value", e.Value)
	dst = AppendSequence(append(dst, ','), "seq", e.Sequence)
	dst = AppendStamp(AppendProperties(dst, e.Properties), e.Properties)
	return append(AppendTTL(dst, e.TTL), '}', '\n')
}

// AppendKey appends an entry as a JSON line with the size of its value in place of that.
func AppendKey(dst []byte, e chp.Entry) []byte {
	dst = jsonline.AppendField(append(dst, '{'), "key", e.Key)
	dst = jsonline.AppendNumber(append(dst, ','), "size", int64(len(e.Value)))
	dst = AppendSequence(append(dst, ','), "seq", e.Sequence)
	dst = AppendStamp(AppendProperties(dst, e.Properties), e.Properties)
	return append(AppendTTL(dst, e.TTL), '}', '\n')
}

// AppendStored appends the fields of an entry that chp load reads.
func AppendStored(dst []byte, e chp.Entry) []byte {
	dst = jsonline.AppendField(dst, "key", e.Key)
	dst = jsonline.AppendField(append(dst, ','), "value", e.Value)
	dst = AppendProperties(dst, e.Properties)
	return AppendTTL(dst, e.TTL)
}

// Fields are the fields of a line, for encoding/json, that say what a key is set to.
// Pointers distinguish empty fields from missing ones.
type Fields struct {
	Key         *string `json:"key"`
	KeyBase64   *[]byte `json:"key_base64"`
	Value       *string `json:"value"`
	ValueBase64 *[]byte `json:"value_base64"`

	Properties       Properties `json:"properties"`
	PropertiesBase64 []byte     `json:"properties_base64"`

	TTL *float64 `json:"ttl"`
}

// Entry returns what the fields say. An expired time to live becomes -1.
func (l *Fields) Entry() (e chp.Entry, err error) {
	if e.Key, err = Text("key", l.Key, l.KeyBase64); err != nil {
		return e, err
	}
	if e.Value, err = Text("value", l.Value, l.ValueBase64); err != nil {
		return e, err
	}
	if len(l.Properties) > 0 && len(l.PropertiesBase64) > 0 {
		return e, errors.New("needs either properties or properties_base64")
	}
	if len(e.Value) == 0 {
		return e, errors.New("the value is empty, which would delete the key")
	}
	if e.Properties = chp.Properties(l.Properties); len(e.Properties) == 0 {
		e.Properties = l.PropertiesBase64
	}
	if l.TTL != nil {
		if e.TTL, err = TimeToLive(*l.TTL); err != nil {
			return e, err
		}
	}
	return e, nil
}

// Text returns the bytes of a field that is text or in base64.
func Text(name string, text *string, inBase64 *[]byte) ([]byte, error) {
	switch {
	case (text == nil) == (inBase64 == nil):
		return nil, fmt.Errorf("needs either %s or %s_base64", name, name)
	case text != nil:
		return []byte(*text), nil
	}
	return *inBase64, nil
}

// TimeToLive converts a number of seconds. It returns -1 if the number is not positive.
func TimeToLive(seconds float64) (time.Duration, error) {
	switch {
	case seconds <= 0:
		return -1, nil
	case seconds > kvmsg.MaxTTL.Seconds():
		return 0, fmt.Errorf("a ttl of %g seconds is over ten years", seconds)
	}
	return max(time.Duration(math.Round(seconds*1e9)), 1), nil
}
