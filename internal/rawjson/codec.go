package rawjson

import (
	"encoding/json"
	"reflect"
	"sync"
)

// An Appender encodes itself. It must append one JSON value, which is checked. An error becomes a *FieldError with the
// path of the value, and errors.Is finds the original in it.
type Appender interface {
	AppendRawJSON(dst []byte) ([]byte, error)
}

// A Parser decodes itself from one value, which has passed [Check], has no white space around it and aliases the input.
// The value may be null, unless the field is a pointer. Errors are treated like those of an [Appender].
type Parser interface {
	ParseRawJSON(raw []byte) error
}

// A codec encodes and decodes one type.
type codec struct {
	enc encodeFunc
	dec decodeFunc
}

type (
	encodeFunc = func(w *writer, dst []byte, v reflect.Value) ([]byte, error)
	// A decodeFunc decodes the value at i into v, which can be set, and returns the index behind it.
	decodeFunc = func(r *reader, i int, v reflect.Value) (int, error)
)

var (
	rawType      = reflect.TypeFor[json.RawMessage]()
	membersType  = reflect.TypeFor[Members]()
	appenderType = reflect.TypeFor[Appender]()
	parserType   = reflect.TypeFor[Parser]()
)

var codecs sync.Map // reflect.Type -> *codec, complete ones only

func codecOf(t reflect.Type) *codec {
	if c, ok := codecs.Load(t); ok {
		return c.(*codec)
	}
	p := planner{}
	c := p.codec(t)
	for t, c := range p {
		codecs.Store(t, c)
	}
	return c
}

// A planner makes codecs. It keeps the ones that are being made, so that a type may contain itself.
type planner map[reflect.Type]*codec

func (p planner) codec(t reflect.Type) *codec {
	if c, ok := codecs.Load(t); ok {
		return c.(*codec)
	}
	if c, ok := p[t]; ok {
		return c
	}
	c := new(codec)
	p[t] = c
	*c = p.plan(t)
	return c
}

func (p planner) plan(t reflect.Type) codec {
	var appends, parses bool
	if k := t.Kind(); k != reflect.Interface && k != reflect.Pointer { // for these two the value's type decides
		appends, parses = takesOver(t)
	}
	if appends && parses {
		return codec{appendSelf, parseSelf}
	}
	c := p.kind(t)
	complain := "rawjson: unsupported type " + t.String()
	switch known := c.enc != nil; {
	case appends:
		c.enc = appendSelf
		if !known {
			c.dec = func(*reader, int, reflect.Value) (int, error) { panic(complain + " to read into") }
		}
	case parses:
		c.dec = parseSelf
		if !known {
			c.enc = func(*writer, []byte, reflect.Value) ([]byte, error) { panic(complain + " to write") }
		}
	case !known:
		panic(complain)
	}
	return c
}

func takesOver(t reflect.Type) (appends, parses bool) {
	ptr := reflect.PointerTo(t) // has the methods of both receivers
	return ptr.Implements(appenderType), ptr.Implements(parserType)
}

// kind returns the codec for t by its kind, or a zero one.
func (p planner) kind(t reflect.Type) codec {
	switch t {
	case rawType:
		return codec{encodeRaw, decodeRaw}
	case membersType:
		return codec{encodeMembers, decodeMembers}
	}
	switch t.Kind() {
	case reflect.String:
		return codec{encodeString, decodeString}
	case reflect.Bool:
		return codec{encodeBool, decodeBool}
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return codec{encodeInt, decodeInt}
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return codec{encodeUint, decodeUint}
	case reflect.Float32, reflect.Float64:
		return codec{encodeFloat, decodeFloat}
	case reflect.Pointer:
		if k := t.Elem().Kind(); k == reflect.Pointer || k == reflect.Interface {
			return codec{} // null would be ambiguous, and a cycle endless
		}
		elem := p.codec(t.Elem())
		return codec{encodePointer(elem), decodePointer(elem)}
	case reflect.Interface:
		return codec{encodeInterface, func(*reader, int, reflect.Value) (int, error) {
			panic("rawjson: cannot read into " + t.String())
		}}
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			if appends, parses := takesOver(t.Elem()); !appends && !parses {
				return codec{encodeBytes, decodeBytes}
			}
		}
		elem := p.codec(t.Elem())
		return codec{encodeSlice(elem), decodeSlice(elem)}
	case reflect.Array:
		elem := p.codec(t.Elem())
		return codec{encodeArray(elem), decodeArray(elem)}
	case reflect.Map:
		if !keyKind(t.Key().Kind()) {
			return codec{}
		}
		elem := p.codec(t.Elem())
		return codec{encodeMap(elem), decodeMap(elem)}
	case reflect.Struct:
		s := p.fields(t)
		if s == nil {
			return codec{}
		}
		return codec{s.encode, s.decode}
	}
	return codec{}
}

func keyKind(k reflect.Kind) bool {
	return k == reflect.String || reflect.Int <= k && k <= reflect.Uint64
}
