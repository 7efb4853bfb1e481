package bucket

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/tallylog/tally/formats"
)

// nameOf returns the name of the object at a path.
func nameOf(path string) string {
	var b strings.Builder
	for i := 0; i < len(path); {
		r, n := utf8.DecodeRuneInString(path[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, "=%02X", path[i])
		case path[i] == '=' && isEscape(path[i:]):
			b.WriteString("=3D")
		default:
			b.WriteString(path[i : i+n])
		}
		i += n
	}
	return b.String()
}

const hex = "0123456789ABCDEF"

// isEscape reports whether a name begins with what is read as a byte: one that is not ASCII, or an
// equals sign before what would be read as a byte without this.
func isEscape(s string) bool {
	for len(s) > 2 && s[1:3] == "3D" {
		s = s[2:] // what follows, with another byte in place of the equals sign
	}
	return len(s) > 2 && strings.IndexByte(hex[8:], s[1]) >= 0 && strings.IndexByte(hex, s[2]) >= 0
}

// found returns what an object of a name is, without what is known of it.
func found(name string) formats.Found {
	var b strings.Builder
	for i := 0; i < len(name); i++ {
		if name[i] == '=' && isEscape(name[i:]) {
			b.WriteByte(byte(strings.IndexByte(hex, name[i+1])<<4 | strings.IndexByte(hex, name[i+2])))
			i += 2
			continue
		}
		b.WriteByte(name[i])
	}
	path := b.String()
	if formats.CheckPath(path) != nil || nameOf(path) != name {
		odd := strings.ReplaceAll(name, "/", ":")
		return formats.Found{Path: odd, Entry: formats.Entry{Name: odd, Size: -1}}
	}
	return formats.Found{Path: path, Entry: formats.Entry{Name: path[strings.LastIndexByte(path, '/')+1:]}}
}
