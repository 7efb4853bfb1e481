package rawjson

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

const maxFields = 256

// A structPlan encodes and decodes one struct type: its fields in order, with the fields of embedded structs at the
// struct's position.
type structPlan struct {
	fields  []field
	byName  map[string]int
	unknown []int // index of the Members field for unknown names, or nil
	keeps   bool  // some fields are kept
}

type field struct {
	name     string
	key      []byte // the encoded name, with colon
	index    []int
	codec    *codec
	notEmpty bool // omitempty
	notZero  bool // omitzero
	kept     bool // kept: a member that would be omitted is written anyway
}

// at returns v's field at index.
func at(v reflect.Value, index []int) reflect.Value {
	if len(index) == 1 {
		return v.Field(index[0])
	}
	return v.FieldByIndex(index)
}

func (f *field) omitted(v reflect.Value) bool {
	return f.notEmpty && empty(v) || f.notZero && v.IsZero()
}

func empty(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Slice, reflect.Map, reflect.String, reflect.Array:
		return v.Len() == 0
	case reflect.Struct:
		return false
	}
	return v.IsZero()
}

// fields plans t. It returns nil for a struct with only unexported fields, such as time.Time: encoding it as {} would
// lose its content.
func (p planner) fields(t reflect.Type) *structPlan {
	s := &structPlan{byName: map[string]int{}}
	p.collect(s, t, nil)
	if len(s.fields) == 0 && s.unknown == nil && hidesAll(t) {
		return nil
	}
	if s.keeps && s.unknown == nil {
		panic("rawjson: " + t.String() + " keeps fields, and has none that takes unknown members")
	}
	if len(s.fields) > maxFields {
		panic(fmt.Sprintf("rawjson: %s has more than %d fields", t, maxFields))
	}
	return s
}

func hidesAll(t reflect.Type) bool {
	for i := range t.NumField() {
		f := t.Field(i)
		if f.IsExported() && !f.Anonymous || f.Anonymous && !(f.Type.Kind() == reflect.Struct && hidesAll(f.Type)) {
			return false
		}
	}
	return t.NumField() > 0
}

func (p planner) collect(s *structPlan, t reflect.Type, index []int) {
	for i := range t.NumField() {
		sf := t.Field(i)
		tag := sf.Tag.Get("json")
		if tag == "-" || !sf.IsExported() && !sf.Anonymous {
			continue
		}
		path := append(index[:len(index):len(index)], i)
		name, options, _ := strings.Cut(tag, ",")
		if sf.Anonymous && name == "" {
			switch k := sf.Type.Kind(); {
			case k == reflect.Struct && hidesAll(sf.Type):
				panic("rawjson: embedded " + sf.Type.String() + " in " + t.String() + " would be lost")
			case k == reflect.Struct:
				p.collect(s, sf.Type, path)
				continue
			case k == reflect.Pointer:
				panic("rawjson: embedded pointer in " + t.String())
			}
		}
		if !sf.IsExported() {
			continue
		}
		f := field{name: name, index: path}
		if name == "" {
			f.name = sf.Name
		}
		if option, ok := sf.Tag.Lookup("rawjson"); ok {
			if option != "kept" {
				panic("rawjson: field " + sf.Name + ": unknown option of the tag rawjson: " + option)
			}
			f.kept, s.keeps = true, true
		}
		if s.options(&f, options, sf) {
			p.add(s, f, t, sf.Type)
		}
	}
}

// options parses the tag after the name. It returns false for the field that takes unknown members.
func (s *structPlan) options(f *field, options string, sf reflect.StructField) bool {
	for option := range strings.SplitSeq(options, ",") {
		switch option {
		case "":
		case "omitempty":
			f.notEmpty = true
		case "omitzero":
			f.notZero = true
		case "unknown":
			if sf.Type != membersType || s.unknown != nil {
				panic("rawjson: field " + sf.Name + `: ",unknown" is for one field of type Members`)
			}
			s.unknown = f.index
			return false
		default:
			panic("rawjson: field " + sf.Name + ": unknown tag option " + option)
		}
	}
	return true
}

// add adds a field. Of two with one name the outer one counts, as in Go; at the same depth they are a mistake.
func (p planner) add(s *structPlan, f field, t, ft reflect.Type) {
	f.key = append(AppendString(nil, f.name), ':')
	if n, ok := s.byName[f.name]; ok {
		switch have := &s.fields[n]; {
		case len(have.index) < len(f.index):
			return
		case len(have.index) == len(f.index):
			panic("rawjson: " + t.String() + " has two fields named " + f.name)
		}
		s.fields = append(s.fields[:n], s.fields[n+1:]...)
		for name, m := range s.byName {
			if m > n {
				s.byName[name] = m - 1
			}
		}
	}
	f.codec = p.codec(ft)
	s.byName[f.name] = len(s.fields)
	s.fields = append(s.fields, f)
}

// find returns the index of the field called name, or -1. Most payloads have the order of the struct, so it tries hint
// first.
func (s *structPlan) find(name []byte, hint int) int {
	if hint < len(s.fields) && string(name) == s.fields[hint].name {
		return hint
	}
	if n, ok := s.byName[string(name)]; ok {
		return n
	}
	return -1
}

func (s *structPlan) encode(w *writer, dst []byte, v reflect.Value) ([]byte, error) {
	if err := w.enter(); err != nil {
		return nil, err
	}
	dst = append(dst, '{')
	n := len(dst)
	var rest, kept Members
	if s.unknown != nil {
		rest = at(v, s.unknown).Interface().(Members)
	}
	if s.keeps {
		kept, rest = s.split(rest)
	}
	for i := range s.fields {
		f := &s.fields[i]
		fv := at(v, f.index)
		value, isKept := json.RawMessage(nil), false
		if f.omitted(fv) {
			if value, isKept = kept.Get(f.name); !isKept {
				continue
			}
		}
		if len(dst) > n {
			dst = append(dst, ',')
		}
		dst = append(dst, f.key...)
		var err error
		if isKept {
			dst, err = w.raw(dst, value)
		} else {
			dst, err = f.codec.enc(w, dst, fv)
		}
		if err != nil {
			return nil, within(err, f.name)
		}
	}
	if s.unknown != nil {
		var err error
		if dst, err = w.members(dst, rest, len(dst) > n, s.byName); err != nil {
			return nil, err
		}
	}
	w.depth--
	return append(dst, '}'), nil
}

// split separates the members of kept fields from the others.
func (s *structPlan) split(all Members) (kept, rest Members) {
	isKept := func(m Member) bool {
		n, ok := s.byName[m.Name]
		return ok && s.fields[n].kept
	}
	if !slices.ContainsFunc(all, isKept) {
		return nil, all
	}
	for _, m := range all {
		if isKept(m) {
			kept = append(kept, m)
		} else {
			rest = append(rest, m)
		}
	}
	return kept, rest
}

func (s *structPlan) decode(r *reader, i int, v reflect.Value) (int, error) {
	var (
		seen   [maxFields / 64]uint64
		others nameSet
		rest   Members
		hint   int
	)
	i, more, err := r.open(i, '{')
	for more && err == nil {
		var name []byte
		if name, i, err = r.name(i); err != nil {
			return 0, err
		}
		if n := s.find(name, hint); n < 0 {
			one := Member{Name: string(name)}
			if !others.add(one.Name) {
				return 0, &FieldError{one.Name, twice}
			}
			if one.Value, i, err = r.raw(i); err != nil {
				return 0, err
			}
			if s.unknown != nil {
				rest = append(rest, one)
			}
		} else {
			f := &s.fields[n]
			if seen[n/64]>>(n%64)&1 != 0 {
				return 0, &FieldError{f.name, twice}
			}
			seen[n/64] |= 1 << (n % 64)
			hint = n + 1
			begin, fv := i, at(v, f.index)
			if i, err = f.codec.dec(r, i, fv); err != nil {
				return 0, within(err, f.name)
			}
			if f.kept && f.omitted(fv) {
				rest = append(rest, Member{Name: f.name, Value: r.b[begin:i:i]})
			}
		}
		i, more, err = r.next(i, true)
	}
	if s.unknown != nil {
		at(v, s.unknown).Set(reflect.ValueOf(rest))
	}
	return i, err
}
