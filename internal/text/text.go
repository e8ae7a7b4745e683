// Package text has the texts of values, for all packages alike.
package text

import "fmt"

// Of returns the name of a value of a type of constants. names are those of 0, 1, 2 and so
// on; a value without a name, or with an empty one, is shown with its type and number.
func Of[K ~uint8](k K, kind string, names ...string) string {
	if int(k) < len(names) && names[k] != "" {
		return names[k]
	}
	return fmt.Sprintf("%s(%d)", kind, uint8(k))
}

// Error returns an error that is its text in JSON, and nil for nil.
func Error(err error) error {
	if err == nil {
		return nil
	}
	return marshaled{err}
}

type marshaled struct{ error }

func (m marshaled) MarshalText() ([]byte, error) { return []byte(m.Error()), nil }
