package sockets

import (
	"errors"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"clustermap/zmtp"
)

// constructors create a socket of each type and close it.
var constructors = map[zmtp.SocketType]func(Options) error{
	zmtp.TypePair:   constructor(NewPair),
	zmtp.TypePub:    constructor(NewPub),
	zmtp.TypeSub:    constructor(NewSub),
	zmtp.TypeReq:    constructor(NewReq),
	zmtp.TypeRep:    constructor(NewRep),
	zmtp.TypeDealer: constructor(NewDealer),
	zmtp.TypeRouter: constructor(NewRouter),
	zmtp.TypePull:   constructor(NewPull),
	zmtp.TypePush:   constructor(NewPush),
	zmtp.TypeXPub:   constructor(NewXPub),
	zmtp.TypeXSub:   constructor(NewXSub),
	zmtp.TypeStream: constructor(NewStream),
}

func constructor[S Socket](create func(Options) (S, error)) func(Options) error {
	return func(o Options) error {
		s, err := create(o)
		if err == nil {
			err = s.Close()
		}
		return err
	}
}

// TestOptionTypes: each constructor refuses the options that its type does not use, and
// no others, as optionTypes says, which has all options.
func TestOptionTypes(t *testing.T) {
	t.Parallel()
	all := reflect.TypeFor[Options]()
	for name := range optionTypes {
		if _, ok := all.FieldByName(name); !ok {
			t.Errorf("optionTypes has %s, which is not an option", name)
		}
	}
	for field := range all.Fields() {
		if _, ok := optionTypes[field.Name]; !ok {
			t.Errorf("optionTypes lacks %s", field.Name)
			continue
		}
		var o Options
		set(t, reflect.ValueOf(&o).Elem().FieldByIndex(field.Index))
		for kind, create := range constructors {
			refused := slices.ContainsFunc(unjoined(create(o)), func(err error) bool {
				var e *OptionError
				return errors.As(err, &e) && e.Field == field.Name && e.Reason == "does not apply to "+kind.String()
			})
			if want := !optionTypes[field.Name].has(kind); refused != want {
				t.Errorf("%v with %s: refused %v, want %v", kind, field.Name, refused, want)
			}
		}
	}
}

// set gives a field a value that is not its zero value.
func set(t *testing.T, v reflect.Value) {
	t.Helper()
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(1)
	case reflect.Uint8:
		v.SetUint(1)
	case reflect.String:
		v.SetString("x")
	case reflect.Slice:
		v.Set(reflect.ValueOf([]byte("x")))
	case reflect.Map:
		v.Set(reflect.ValueOf(map[string]string{"X-A": "1"}))
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
	case reflect.Struct:
		v.Set(reflect.ValueOf(Security{ZAPDomain: "x"}))
	case reflect.Func:
		v.Set(reflect.MakeFunc(v.Type(), func([]reflect.Value) []reflect.Value {
			out := make([]reflect.Value, v.Type().NumOut())
			for i := range out {
				out[i] = reflect.Zero(v.Type().Out(i))
			}
			return out
		}))
	default:
		t.Fatalf("no value for an option of type %v", v.Type())
	}
}

// TestEmptyOptionsApply: an empty slice or map selects the default, and is not refused.
func TestEmptyOptionsApply(t *testing.T) {
	t.Parallel()
	for kind, create := range constructors {
		if err := create(Options{Identity: []byte{}, WelcomeMessage: []byte{}, Metadata: map[string]string{}}); err != nil {
			t.Errorf("%v: %v", kind, err)
		}
	}
}

// TestOptionTypesAreDocumented: the section of docs/OPTIONS.md on socket types is
// optionTypes.
func TestOptionTypesAreDocumented(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../docs/OPTIONS.md")
	must(t, err)
	_, section, ok := strings.Cut(string(text), "\n## Which types use which options\n")
	if !ok {
		t.Fatal("no such section")
	}
	section, _, _ = strings.Cut(section, "\n## ")
	documented := map[string]string{}
	for row := range strings.Lines(section) {
		cells := strings.Split(row, "|")
		if len(cells) != 4 || !strings.Contains(cells[1], "`") {
			continue
		}
		for _, name := range regexp.MustCompile("`([A-Za-z0-9]+)`").FindAllStringSubmatch(cells[1], -1) {
			documented[name[1]] = strings.TrimSpace(cells[2])
		}
	}
	for name, of := range optionTypes {
		var want []string
		for _, kind := range slices.Sorted(maps.Keys(constructors)) {
			if of.has(kind) {
				want = append(want, kind.String())
			}
		}
		list := strings.Join(want, ", ")
		switch of {
		case everyType:
			list = "all"
		case speakers:
			list = "all but STREAM"
		}
		if documented[name] != list {
			t.Errorf("docs/OPTIONS.md says that %s applies to %q, want %q", name, documented[name], list)
		}
	}
	for name := range documented {
		if _, ok := optionTypes[name]; !ok {
			t.Errorf("docs/OPTIONS.md lists %s, which is not an option", name)
		}
	}
}

// TestNegativeOptions: a negative value is refused unless it is the named constant of
// its option, above all libzmq's -1 where it would mean the opposite.
func TestNegativeOptions(t *testing.T) {
	t.Parallel()
	named := map[string]int64{
		"SendHWM": Unlimited, "RecvHWM": Unlimited, "SendHWMBytes": Unlimited, "RecvHWMBytes": Unlimited,
		"SendTotalBytes": Unlimited, "RecvTotalBytes": Unlimited, "MaxSubscriptionBytes": Unlimited, "MaxConnections": Unlimited, "MaxTopicSize": Unlimited, "MaxMessageSize": Unlimited, "MaxIncompleteBytes": Unlimited,
		"Linger": int64(LingerNone), "SendTimeout": int64(NoWait), "RecvTimeout": int64(NoWait),
		"ReconnectInterval": int64(ReconnectNever), "BusyPoll": int64(BusyPollOff),
		"KeepAliveIdle": KeepAliveSystem, "KeepAliveInterval": KeepAliveSystem, "KeepAliveCount": KeepAliveSystem,
	}
	for field := range reflect.TypeFor[Options]().Fields() {
		if k := field.Type.Kind(); k != reflect.Int && k != reflect.Int64 {
			continue
		}
		special, any := named[field.Name]
		for _, n := range []int64{-1, -2, -int64(time.Millisecond), special} {
			if int64(int(n)) != n && field.Type.Kind() == reflect.Int {
				continue
			}
			var o Options
			reflect.ValueOf(&o).Elem().FieldByIndex(field.Index).SetInt(n)
			_, err := o.withDefaults()
			var e *OptionError
			refused := errors.As(err, &e) && e.Field == field.Name
			if want := n < 0 && (!any || n != special); refused != want {
				t.Errorf("%s: %d: %v, want refused %v", field.Name, n, err, want)
			}
		}
	}
}
