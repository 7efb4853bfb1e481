package rawjson

import "bytes"

// Objects parses consecutive objects with only white space between them. rest is the input after the last one: it is
// empty, or does not begin with an object. The values alias b.
func Objects(b []byte) (list []Members, rest []byte) {
	for b = Trim(b); len(b) > 0; b = Trim(b) {
		end := objectEnd(b)
		o, err := Object(b[:end])
		if err != nil {
			break
		}
		list, b = append(list, o), b[end:]
	}
	return list, b
}

// objectEnd returns the index behind the object at the start of b, or 0 if there is no complete one. It does not check
// that the object is valid: Object does.
func objectEnd(b []byte) int {
	if b[0] != '{' {
		return 0
	}
	depth := 0
	for i := 0; i < len(b); {
		switch b[i] {
		case '"':
			i = StringEnd(b, i)
			continue
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		}
		if i++; depth == 0 {
			return i
		}
	}
	return 0
}

// Ending parses the object at the end of b, whatever comes before it, such as half a line to which another program
// appended. rest is the input before it. ok is false if b does not end with an object. The values alias b.
func Ending(b []byte) (o Members, rest []byte, ok bool) {
	b = bytes.TrimRight(b, " \t\r\n")
	start := objectStart(b)
	if start < 0 {
		return nil, b, false
	}
	o, err := Object(b[start:])
	if err != nil {
		return nil, b, false
	}
	return o, b[:start], true
}

// objectStart returns where the object at the end of b begins, or -1. It does not check that the object is valid:
// Object does.
func objectStart(b []byte) int {
	if len(b) == 0 || b[len(b)-1] != '}' {
		return -1
	}
	depth := 0
	for i := len(b) - 1; i >= 0; i-- {
		switch b[i] {
		case '"':
			i = stringStart(b, i)
		case '}', ']':
			depth++
		case '{', '[':
			if depth--; depth == 0 {
				return i
			}
		}
	}
	return -1
}

// stringStart returns where the string begins whose closing quote is at end, or -1: the last quote before it that no
// backslash escapes.
func stringStart(b []byte, end int) int {
	for i := end - 1; i >= 0; i-- {
		if b[i] != '"' {
			continue
		}
		escapes := i
		for escapes > 0 && b[escapes-1] == '\\' {
			escapes--
		}
		if (i-escapes)%2 == 0 {
			return i
		}
		i = escapes
	}
	return -1
}
