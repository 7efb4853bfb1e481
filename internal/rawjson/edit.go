package rawjson

// SetMember returns the object with the value of one member replaced, or with a new last member. All other bytes are
// unchanged. It returns the errors of [Object].
func SetMember(object []byte, name string, value []byte) ([]byte, error) {
	m, err := Object(object)
	if err != nil {
		return nil, err
	}
	if err := Check(value); err != nil {
		return nil, within(foreign(err), name)
	}
	spans := spansOf(object, len(m))
	for i := range m {
		if m[i].Name == name {
			return splice(object, spans[i].value, spans[i].end, value), nil
		}
	}
	key := append(AppendString(nil, name), ':')
	member := append(key, value...)
	if len(m) == 0 {
		at := space(object, 0) + 1
		return splice(object, at, at, member), nil
	}
	at := spans[len(m)-1].end
	return splice(object, at, at, append([]byte{','}, member...)), nil
}

// DeleteMember returns the object without a member, or unchanged if it has no such member. It also removes the member's
// comma and the white space before it; all other bytes are unchanged.
func DeleteMember(object []byte, name string) ([]byte, error) {
	m, err := Object(object)
	if err != nil {
		return nil, err
	}
	spans := spansOf(object, len(m))
	for i := range m {
		switch {
		case m[i].Name != name:
		case i > 0:
			return splice(object, spans[i-1].end, spans[i].end, nil), nil
		case len(m) > 1:
			return splice(object, spans[0].name, spans[1].name, nil), nil
		default:
			return splice(object, spans[0].name, spans[0].end, nil), nil
		}
	}
	return object, nil
}

func splice(b []byte, from, to int, middle []byte) []byte {
	out := make([]byte, 0, len(b)-(to-from)+len(middle))
	out = append(out, b[:from]...)
	out = append(out, middle...)
	return append(out, b[to:]...)
}

// span is the position of a member.
type span struct{ name, value, end int }

// spansOf finds the n members of a valid object.
func spansOf(b []byte, n int) []span {
	spans := make([]span, 0, n)
	i := space(b, 0) + 1
	for range n {
		var s span
		s.name = space(b, i)
		s.value = space(b, space(b, StringEnd(b, s.name))+1) // behind the colon
		s.end = valueEnd(b, s.value)
		spans = append(spans, s)
		i = space(b, s.end) + 1 // behind the comma
	}
	return spans
}

// valueEnd returns the index behind a valid value.
func valueEnd(b []byte, i int) int {
	for depth := 0; i < len(b); {
		switch c := b[i]; c {
		case '"':
			i = StringEnd(b, i)
		case '{', '[':
			depth++
			i++
		case '}', ']':
			if depth == 0 {
				return i
			}
			depth--
			i++
		default:
			if depth == 0 && (c == ',' || blank(c)) {
				return i
			}
			i++
			continue
		}
		if depth == 0 {
			return i
		}
	}
	return i
}
