package rawjson

import "bytes"

// Objects reads objects that stand one behind the other, with nothing but white space
// between them. rest is what follows the last one: it is empty, or begins with something
// that is no object. The values alias b.
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

// objectEnd returns the place behind the object that b begins with, 0 if it begins with
// none or with one that does not end. Whether it is one Object says.
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

// Ending reads the object that b ends with, whatever stands before it: half of a line, say,
// behind which another program wrote. rest is what stands before it. It is false if b ends
// with no object. The values alias b.
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

// objectStart returns where the object begins that b ends with, -1 if there is none. Whether
// it is one Object says.
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

// stringStart returns where the string begins that ends with the quote at a place, -1 if it
// does not begin: at the last quote before it that no backslash escapes.
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
