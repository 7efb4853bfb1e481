package rawjson

import (
	"cmp"
	"encoding/base64"
	"math"
	"reflect"
	"slices"
	"strconv"
	"unicode/utf8"
)

// Marshal encodes v. Fields have the order of the struct, with the fields of untagged embedded structs at the struct's
// position; the tags are encoding/json's, with omitempty and omitzero. A json.RawMessage is written byte for byte, nil
// as null; []byte is padded base64; nil slices, maps and pointers are null; map keys are strings or integers and are
// sorted.
//
// It returns a *FieldError for a raw value that does not pass [Check] or is too deep for its position, for a string or
// name that is not UTF-8, for NaN and infinities, for a name that would be written twice, and for the error of an
// [Appender]. It panics for unsupported types, which are a mistake in the program.
func Marshal(v any) ([]byte, error) { return Append(nil, v) }

// Append is [Marshal] at the end of dst. If there is an error, it returns dst unchanged.
func Append(dst []byte, v any) ([]byte, error) { return appendValue(dst, v, writer{}) }

// AppendVerbatim is [Append] for raw values that have been scanned: it does not check them again.
func AppendVerbatim(dst []byte, v any) ([]byte, error) {
	return appendValue(dst, v, writer{verbatim: true})
}

func appendValue(dst []byte, v any, w writer) ([]byte, error) {
	if v == nil {
		return append(dst, "null"...), nil
	}
	rv := reflect.ValueOf(v)
	out, err := codecOf(rv.Type()).enc(&w, dst, rv)
	if err != nil {
		return dst, err
	}
	return out, nil
}

// A writer tracks its depth, so that it never writes a value that is too deep to read, and a cycle of pointers ends.
type writer struct {
	depth    int
	verbatim bool // raw values are known to be valid
}

func (w *writer) enter() error {
	if w.depth++; w.depth > MaxDepth {
		return misfit("%s", tooDeep)
	}
	return nil
}

// raw appends a value that must be JSON, unchanged.
func (w *writer) raw(dst, raw []byte) ([]byte, error) {
	if raw == nil {
		return append(dst, "null"...), nil
	}
	if !w.verbatim {
		if err := checkAt(raw, w.depth); err != nil {
			return nil, misfit("%v", err)
		}
	}
	if len(raw) > behind {
		dst = slices.Grow(dst, len(raw)+behind)
	}
	return append(dst, raw...), nil
}

// behind is extra capacity behind a large value, so that appending after it does not copy the value.
const behind = 1 << 10

// members appends m without braces, with a comma first if comma is set. It refuses names that are taken.
func (w *writer) members(dst []byte, m Members, comma bool, taken map[string]int) ([]byte, error) {
	var seen nameSet
	for i := range m {
		name := m[i].Name
		if _, ok := taken[name]; ok || !seen.add(name) {
			return nil, &FieldError{name, twice}
		}
		var err error
		if dst, err = appendKey(dst, name, comma); err != nil {
			return nil, err
		}
		if dst, err = w.raw(dst, m[i].Value); err != nil {
			return nil, within(err, name)
		}
		comma = true
	}
	return dst, nil
}

// appendKey refuses names that AppendString would alter: two of them could become one.
func appendKey(dst []byte, name string, comma bool) ([]byte, error) {
	if !utf8.ValidString(name) {
		return nil, misfit("name %q is not UTF-8", name)
	}
	if comma {
		dst = append(dst, ',')
	}
	return append(AppendString(dst, name), ':'), nil
}

func encodeRaw(w *writer, dst []byte, v reflect.Value) ([]byte, error) {
	return w.raw(dst, v.Bytes())
}

func encodeMembers(w *writer, dst []byte, v reflect.Value) ([]byte, error) {
	err := w.enter()
	if err != nil {
		return nil, err
	}
	dst, err = w.members(append(dst, '{'), v.Interface().(Members), false, nil)
	if err != nil {
		return nil, err
	}
	w.depth--
	return append(dst, '}'), nil
}

// encodeString refuses strings that AppendString would alter: they would not read back the same.
func encodeString(_ *writer, dst []byte, v reflect.Value) ([]byte, error) {
	s := v.String()
	if !utf8.ValidString(s) {
		return nil, misfit("%q is not UTF-8", s)
	}
	return AppendString(dst, s), nil
}

func encodeBool(_ *writer, dst []byte, v reflect.Value) ([]byte, error) {
	return strconv.AppendBool(dst, v.Bool()), nil
}

func encodeInt(_ *writer, dst []byte, v reflect.Value) ([]byte, error) {
	return strconv.AppendInt(dst, v.Int(), 10), nil
}

func encodeUint(_ *writer, dst []byte, v reflect.Value) ([]byte, error) {
	return strconv.AppendUint(dst, v.Uint(), 10), nil
}

// encodeFloat writes numbers like JavaScript and encoding/json.
func encodeFloat(_ *writer, dst []byte, v reflect.Value) ([]byte, error) {
	f, size := v.Float(), v.Type().Bits()
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return nil, misfit("%v is no JSON number", f)
	}
	format, low, high := byte('f'), 1e-6, 1e21
	if size == 32 {
		low, high = float64(float32(low)), float64(float32(high))
	}
	if a := math.Abs(f); a != 0 && (a < low || a >= high) {
		format = 'e'
	}
	dst = strconv.AppendFloat(dst, f, format, -1, size)
	if n := len(dst); format == 'e' && n >= 4 && string(dst[n-4:n-1]) == "e-0" {
		dst[n-2] = dst[n-1] // e-09 is written e-9
		dst = dst[:n-1]
	}
	return dst, nil
}

func encodeBytes(_ *writer, dst []byte, v reflect.Value) ([]byte, error) {
	if v.IsNil() {
		return append(dst, "null"...), nil
	}
	dst = base64.StdEncoding.AppendEncode(append(dst, '"'), v.Bytes())
	return append(dst, '"'), nil
}

func encodePointer(elem *codec) encodeFunc {
	return func(w *writer, dst []byte, v reflect.Value) ([]byte, error) {
		if v.IsNil() {
			return append(dst, "null"...), nil
		}
		return elem.enc(w, dst, v.Elem())
	}
}

func encodeInterface(w *writer, dst []byte, v reflect.Value) ([]byte, error) {
	if v.IsNil() {
		return append(dst, "null"...), nil
	}
	v = v.Elem()
	return codecOf(v.Type()).enc(w, dst, v)
}

func encodeSlice(elem *codec) encodeFunc {
	array := encodeArray(elem)
	return func(w *writer, dst []byte, v reflect.Value) ([]byte, error) {
		if v.IsNil() {
			return append(dst, "null"...), nil
		}
		return array(w, dst, v)
	}
}

func encodeArray(elem *codec) encodeFunc {
	return func(w *writer, dst []byte, v reflect.Value) ([]byte, error) {
		err := w.enter()
		if err != nil {
			return nil, err
		}
		dst = append(dst, '[')
		for n := range v.Len() {
			if n > 0 {
				dst = append(dst, ',')
			}
			if dst, err = elem.enc(w, dst, v.Index(n)); err != nil {
				return nil, within(err, atIndex(n))
			}
		}
		w.depth--
		return append(dst, ']'), nil
	}
}

func encodeMap(elem *codec) encodeFunc {
	return func(w *writer, dst []byte, v reflect.Value) ([]byte, error) {
		if v.IsNil() {
			return append(dst, "null"...), nil
		}
		err := w.enter()
		if err != nil {
			return nil, err
		}
		keys := v.MapKeys()
		slices.SortFunc(keys, compareKeys)
		dst = append(dst, '{')
		for n, key := range keys {
			name := keyName(key)
			if dst, err = appendKey(dst, name, n > 0); err != nil {
				return nil, err
			}
			if dst, err = elem.enc(w, dst, v.MapIndex(key)); err != nil {
				return nil, within(err, atKey(name))
			}
		}
		w.depth--
		return append(dst, '}'), nil
	}
}

func compareKeys(a, b reflect.Value) int {
	switch {
	case a.Kind() == reflect.String:
		return cmp.Compare(a.String(), b.String())
	case a.CanInt():
		return cmp.Compare(a.Int(), b.Int())
	}
	return cmp.Compare(a.Uint(), b.Uint())
}

func keyName(key reflect.Value) string {
	switch {
	case key.Kind() == reflect.String:
		return key.String()
	case key.CanInt():
		return strconv.FormatInt(key.Int(), 10)
	}
	return strconv.FormatUint(key.Uint(), 10)
}

// appendSelf calls v's Appender. A method with a pointer receiver gets a copy if v has no address.
func appendSelf(w *writer, dst []byte, v reflect.Value) ([]byte, error) {
	self, ok := v.Interface().(Appender)
	if !ok {
		if !v.CanAddr() {
			addressed := reflect.New(v.Type()).Elem()
			addressed.Set(v)
			v = addressed
		}
		self = v.Addr().Interface().(Appender)
	}
	out, err := self.AppendRawJSON(dst)
	if err != nil {
		return nil, foreign(err)
	}
	if len(out) < len(dst) {
		return nil, misfit("AppendRawJSON of %s lost what was before", v.Type())
	}
	if err := checkAt(out[len(dst):], w.depth); err != nil {
		return nil, misfit("AppendRawJSON of %s: %v", v.Type(), err)
	}
	return out, nil
}
