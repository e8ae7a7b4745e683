package option

import (
	"errors"
	"reflect"
	"unsafe"
)

// Adopt copies to given, the options of a package without their defaults, the fields that
// differ between shown and wanted. The other fields keep their given values, so that a default
// that depends on another field continues to depend on it. It returns an error for each field
// that differs and is in fixed, with the reason for which it cannot change. Fields of the type
// nested are structs of options themselves.
func Adopt[T any](pkg string, given, shown, wanted *T, fixed map[string]string, nested reflect.Type) error {
	var errs []error
	var walk func(given, shown, wanted reflect.Value)
	walk = func(given, shown, wanted reflect.Value) {
		for i := range given.NumField() {
			g, s, w := given.Field(i), shown.Field(i), wanted.Field(i)
			if g.Type() == nested {
				walk(g, s, w)
				continue
			}
			if same(s, w) {
				continue
			}
			name := given.Type().Field(i).Name
			if why, ok := fixed[name]; ok {
				errs = append(errs, New(pkg, name, "%s", "cannot change: it "+why))
				continue
			}
			g.Set(w)
		}
	}
	walk(reflect.ValueOf(given).Elem(), reflect.ValueOf(shown).Elem(), reflect.ValueOf(wanted).Elem())
	return errors.Join(errs...)
}

// same reports whether two fields have the same value. Functions are the same only if
// they are copies of one function value.
func same(a, b reflect.Value) bool {
	switch a.Kind() {
	case reflect.Func:
		return *(*unsafe.Pointer)(a.Addr().UnsafePointer()) == *(*unsafe.Pointer)(b.Addr().UnsafePointer())
	case reflect.Pointer:
		return a.Pointer() == b.Pointer()
	}
	return reflect.DeepEqual(a.Interface(), b.Interface())
}

// Clone returns a copy of a struct that shares no slices and maps with it.
func Clone[T any](o *T) T {
	c := *o
	for _, f := range reflect.ValueOf(&c).Elem().Fields() {
		switch {
		case f.Kind() == reflect.Slice && !f.IsNil():
			f.Set(reflect.AppendSlice(reflect.MakeSlice(f.Type(), 0, f.Len()), f))
		case f.Kind() == reflect.Map && !f.IsNil():
			m := reflect.MakeMapWithSize(f.Type(), f.Len())
			for k, v := range f.Seq2() {
				m.SetMapIndex(k, v)
			}
			f.Set(m)
		}
	}
	return c
}
