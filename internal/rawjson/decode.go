package rawjson

import (
	"bytes"
	"encoding/base64"
	"reflect"
	"strconv"
)

// Unmarshal decodes one JSON value into the variable that v points to, with the same tags as [Marshal]. Names must
// match exactly. Unknown names are ignored unless a [Members] field takes them. Fields that do not occur are unchanged;
// slices, maps and pointers that occur are allocated. A json.RawMessage aliases b and has no white space around it.
//
// It returns a *SyntaxError if b does not pass [Check], and otherwise a *FieldError for: a value of the wrong type;
// null for anything but a pointer or a raw value; a name that occurs twice in a struct or map; a number that is out of
// range or, for integers, has a fraction or an exponent; an array of the wrong length; a lone surrogate in a string;
// base64 that is not canonical; the error of a [Parser]. After an error v may be filled in part.
//
// It panics if v is not a pointer or leads to an unsupported type.
func Unmarshal(b []byte, v any) error {
	p := reflect.ValueOf(v)
	if p.Kind() != reflect.Pointer || p.IsNil() {
		panic("rawjson: Unmarshal needs a pointer that is not nil")
	}
	r := &reader{b: b}
	i, err := start(b)
	if err == nil {
		i, err = codecOf(p.Type().Elem()).dec(r, i, p.Elem())
	}
	if err == nil {
		err = finish(b, i)
	}
	if err != nil {
		return settle(b, err)
	}
	return nil
}

func decodeRaw(r *reader, i int, v reflect.Value) (int, error) {
	raw, i, err := r.raw(i)
	if err == nil {
		v.SetBytes(raw)
	}
	return i, err
}

func decodeMembers(r *reader, i int, v reflect.Value) (int, error) {
	m, i, err := r.members(i)
	if err == nil {
		v.Set(reflect.ValueOf(m))
	}
	return i, err
}

func decodeString(r *reader, i int, v reflect.Value) (int, error) {
	s, i, err := r.str(i)
	if err == nil {
		v.SetString(string(s))
	}
	return i, err
}

func decodeBool(r *reader, i int, v reflect.Value) (int, error) {
	if i >= len(r.b) || r.b[i] != 't' && r.b[i] != 'f' {
		return 0, r.want(i, "a boolean")
	}
	end, err := scanScalar(r.b, i)
	if err == nil {
		v.SetBool(r.b[i] == 't')
	}
	return end, err
}

// integer returns the index behind an integer.
func (r *reader) integer(i int) (end int, err error) {
	if i >= len(r.b) || kindOf(r.b[i]) != "a number" {
		return 0, r.want(i, "an integer")
	}
	end, integer, err := scanNumber(r.b, i)
	if err == nil && !integer {
		err = misfit("want an integer, have %s", clip(r.b[i:end]))
	}
	return end, err
}

func decodeInt(r *reader, i int, v reflect.Value) (int, error) {
	end, err := r.integer(i)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(string(r.b[i:end]), 10, v.Type().Bits())
	if err != nil {
		return 0, outOfRange(r.b[i:end], v)
	}
	v.SetInt(n)
	return end, nil
}

func decodeUint(r *reader, i int, v reflect.Value) (int, error) {
	end, err := r.integer(i)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseUint(string(r.b[i:end]), 10, v.Type().Bits())
	if err != nil {
		return 0, outOfRange(r.b[i:end], v)
	}
	v.SetUint(n)
	return end, nil
}

func decodeFloat(r *reader, i int, v reflect.Value) (int, error) {
	if i >= len(r.b) || kindOf(r.b[i]) != "a number" {
		return 0, r.want(i, "a number")
	}
	end, _, err := scanNumber(r.b, i)
	if err != nil {
		return 0, err
	}
	f, err := strconv.ParseFloat(string(r.b[i:end]), v.Type().Bits())
	if err != nil {
		return 0, outOfRange(r.b[i:end], v)
	}
	v.SetFloat(f)
	return end, nil
}

func outOfRange(number []byte, v reflect.Value) error {
	return misfit("%s is out of range for %s", clip(number), v.Kind())
}

// clip shortens text for errors.
func clip(b []byte) string {
	if len(b) > 40 {
		return string(b[:40]) + "..."
	}
	return string(b)
}

var strictBase64 = base64.StdEncoding.Strict()

func decodeBytes(r *reader, i int, v reflect.Value) (int, error) {
	s, i, err := r.str(i)
	if err != nil {
		return 0, err
	}
	out := make([]byte, strictBase64.DecodedLen(len(s)))
	n, err := strictBase64.Decode(out, s)
	if err != nil || bytes.ContainsAny(s, "\r\n") { // the decoder would skip them
		return 0, misfit("want base64")
	}
	v.SetBytes(out[:n:n])
	return i, nil
}

func decodePointer(elem *codec) decodeFunc {
	return func(r *reader, i int, v reflect.Value) (int, error) {
		if r.null(i) {
			v.SetZero()
			return i + 4, nil
		}
		p := reflect.New(v.Type().Elem())
		i, err := elem.dec(r, i, p.Elem())
		if err == nil {
			v.Set(p)
		}
		return i, err
	}
}

func decodeSlice(elem *codec) decodeFunc {
	return func(r *reader, i int, v reflect.Value) (int, error) {
		i, more, err := r.open(i, '[')
		if err != nil {
			return 0, err
		}
		v.SetZero()
		if !more {
			v.Set(reflect.MakeSlice(v.Type(), 0, 0))
		}
		for n := 0; more && err == nil; n++ {
			v.Grow(1)
			v.SetLen(n + 1)
			slot := v.Index(n)
			slot.SetZero()
			if i, err = elem.dec(r, i, slot); err != nil {
				return 0, within(err, atIndex(n))
			}
			i, more, err = r.next(i, false)
		}
		return i, err
	}
}

func decodeArray(elem *codec) decodeFunc {
	return func(r *reader, i int, v reflect.Value) (int, error) {
		i, more, err := r.open(i, '[')
		n := 0
		for ; more && err == nil; n++ {
			if n == v.Len() {
				return 0, misfit("want %d elements, have more", v.Len())
			}
			slot := v.Index(n)
			slot.SetZero()
			if i, err = elem.dec(r, i, slot); err != nil {
				return 0, within(err, atIndex(n))
			}
			i, more, err = r.next(i, false)
		}
		if err == nil && n < v.Len() {
			err = misfit("want %d elements, have %d", v.Len(), n)
		}
		return i, err
	}
}

func decodeMap(elem *codec) decodeFunc {
	return func(r *reader, i int, v reflect.Value) (int, error) {
		i, more, err := r.open(i, '{')
		if err != nil {
			return 0, err
		}
		t := v.Type()
		v.Set(reflect.MakeMap(t))
		for more && err == nil {
			var name []byte
			if name, i, err = r.name(i); err != nil {
				return 0, err
			}
			key, value := reflect.New(t.Key()).Elem(), reflect.New(t.Elem()).Elem()
			if !setKey(key, string(name)) {
				return 0, &FieldError{atKey(string(name)), "want a decimal " + t.Key().Kind().String() + " as name"}
			}
			if v.MapIndex(key).IsValid() {
				return 0, &FieldError{atKey(string(name)), twice}
			}
			if i, err = elem.dec(r, i, value); err != nil {
				return 0, within(err, atKey(string(name)))
			}
			v.SetMapIndex(key, value)
			i, more, err = r.next(i, true)
		}
		return i, err
	}
}

// setKey sets a map key. Integers must have the canonical spelling, or two names could be one key.
func setKey(key reflect.Value, name string) bool {
	switch {
	case key.Kind() == reflect.String:
		key.SetString(name)
		return true
	case key.CanInt():
		n, err := strconv.ParseInt(name, 10, key.Type().Bits())
		key.SetInt(n)
		return err == nil && strconv.FormatInt(n, 10) == name
	}
	n, err := strconv.ParseUint(name, 10, key.Type().Bits())
	key.SetUint(n)
	return err == nil && strconv.FormatUint(n, 10) == name
}

func parseSelf(r *reader, i int, v reflect.Value) (int, error) {
	raw, i, err := r.raw(i)
	if err != nil {
		return 0, err
	}
	if err := v.Addr().Interface().(Parser).ParseRawJSON(raw); err != nil {
		return 0, foreign(err)
	}
	return i, nil
}
