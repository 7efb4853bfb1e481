package rawjson

import "encoding/json"

const twice = "duplicate name"

// A reader walks over b. Its methods take the index of a token, after white space, and return the index behind it.
type reader struct {
	b     []byte
	depth int // containers open
}

// settle decides which error an input gets: if it is not valid JSON, a SyntaxError, wherever the reader stopped.
func settle(b []byte, err error) error {
	if _, ok := err.(*SyntaxError); !ok {
		if syntax := Check(b); syntax != nil {
			return syntax
		}
	}
	return err
}

// open enters the container that begins with c. If more is true, its first element begins at next; else the container
// is empty, and next is behind it.
func (r *reader) open(i int, c byte) (next int, more bool, err error) {
	if i >= len(r.b) || r.b[i] != c {
		return 0, false, r.want(i, kindOf(c))
	}
	if r.depth++; r.depth > MaxDepth {
		return 0, false, bad(i, tooDeep)
	}
	i = space(r.b, i+1)
	if i < len(r.b) && r.b[i] == c+2 {
		r.depth--
		return i + 1, false, nil
	}
	return i, true, nil
}

// next passes a comma, or leaves the container.
func (r *reader) next(i int, object bool) (next int, more bool, err error) {
	next, more, err = scanNext(r.b, i, object)
	if !more {
		r.depth--
	}
	return next, more, err
}

// name reads a name and its colon.
func (r *reader) name(i int) (name []byte, next int, err error) {
	if i >= len(r.b) || r.b[i] != '"' {
		_, err := scanName(r.b, i)
		return nil, 0, err
	}
	end, escaped, err := scanString(r.b, i)
	if err != nil {
		return nil, 0, err
	}
	name = r.b[i+1 : end-1]
	if escaped {
		var ok bool
		if name, ok = unescape(name); !ok {
			return nil, 0, misfit("name %s has a lone surrogate", r.b[i:end])
		}
	}
	next, err = scanColon(r.b, end)
	return name, next, err
}

// str reads a string. The result may alias the input.
func (r *reader) str(i int) (s []byte, next int, err error) {
	if i >= len(r.b) || r.b[i] != '"' {
		return nil, 0, r.want(i, "a string")
	}
	next, escaped, err := scanString(r.b, i)
	if err != nil {
		return nil, 0, err
	}
	s = r.b[i+1 : next-1]
	if escaped {
		var ok bool
		if s, ok = unescape(s); !ok {
			return nil, 0, misfit("lone surrogate in a string")
		}
	}
	return s, next, nil
}

// raw reads any value unchanged. Its capacity ends with it, so that appending to it does not overwrite the input.
func (r *reader) raw(i int) (json.RawMessage, int, error) {
	end, err := scanValue(r.b, i, r.depth)
	if err != nil {
		return nil, 0, err
	}
	return r.b[i:end:end], end, nil
}

// null reports whether the value at i is null.
func (r *reader) null(i int) bool {
	return len(r.b)-i >= 4 && string(r.b[i:i+4]) == "null"
}

// want returns the error for a value at i of an unexpected kind.
func (r *reader) want(i int, what string) error {
	if i >= len(r.b) {
		return bad(i, "unexpected end")
	}
	have := kindOf(r.b[i])
	if have == "" {
		return bad(i, "want a value")
	}
	return misfit("want %s, have %s", what, have)
}

// kindOf names the kind of a value that begins with c.
func kindOf(c byte) string {
	switch c {
	case '{':
		return "an object"
	case '[':
		return "an array"
	case '"':
		return "a string"
	case 't', 'f':
		return "a boolean"
	case 'n':
		return "null"
	case '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
		return "a number"
	}
	return ""
}
