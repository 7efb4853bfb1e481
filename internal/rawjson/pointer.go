package rawjson

import (
	"fmt"
	"strconv"
	"strings"
)

// Locate returns the position of a JSON pointer's (RFC 6901) value in b, to exclusive. The empty pointer names all of
// b. If the value does not exist, the error says how far the pointer leads.
func Locate(b []byte, pointer string) (from, to int, err error) {
	if err := Check(b); err != nil {
		return 0, 0, err
	}
	from = space(b, 0)
	to = valueEnd(b, from)
	if pointer == "" {
		return from, to, nil
	}
	names := strings.Split(pointer, "/")
	if names[0] != "" {
		return 0, 0, fmt.Errorf("%q is no JSON pointer: it does not begin with /", pointer)
	}
	for i, name := range names[1:] {
		step, err := below(b[from:to], name)
		if err != nil {
			return 0, 0, fmt.Errorf("%q: %w", strings.Join(names[:i+2], "/"), err)
		}
		from, to = from+step.value, from+step.end
	}
	return from, to, nil
}

// below returns the position of a member of an object, or of an element of an array.
func below(b []byte, name string) (span, error) {
	switch b[0] {
	case '{':
		return memberOf(b, name)
	case '[':
		return elementOf(b, name)
	}
	return span{}, fmt.Errorf("there is neither an object nor an array")
}

func memberOf(b []byte, escaped string) (span, error) {
	name, err := unescapePointer(escaped)
	if err != nil {
		return span{}, err
	}
	members, err := Object(b) // Object refuses duplicate names
	if err != nil {
		return span{}, err
	}
	for i, m := range members {
		if m.Name == name {
			return spansOf(b, len(members))[i], nil
		}
	}
	return span{}, fmt.Errorf("there is no such member")
}

func elementOf(b []byte, index string) (span, error) {
	n, err := strconv.Atoi(index)
	if err != nil || strconv.Itoa(n) != index || n < 0 {
		return span{}, fmt.Errorf("it is no index of an array")
	}
	for i := space(b, 1); b[i] != ']'; n-- {
		s := span{value: i, end: valueEnd(b, i)}
		if n == 0 {
			return s, nil
		}
		if i = space(b, s.end); b[i] == ',' {
			i = space(b, i+1)
		}
	}
	return span{}, fmt.Errorf("the array is shorter")
}

// unescapePointer decodes a name of a JSON pointer: ~0 is a tilde, ~1 a slash.
func unescapePointer(name string) (string, error) {
	for i := 0; i < len(name); i++ {
		if name[i] == '~' && (i+1 == len(name) || name[i+1] != '0' && name[i+1] != '1') {
			return "", fmt.Errorf("a tilde is followed by neither 0 nor 1")
		}
	}
	return strings.NewReplacer("~1", "/", "~0", "~").Replace(name), nil
}
