package rawjson

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
