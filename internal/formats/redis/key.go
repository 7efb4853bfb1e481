package redis

import (
	"cmp"
	"path"
	"strings"

	"github.com/tallylog/tally/internal/formats"
)

var (
	escaped   = strings.NewReplacer(":", "=3A", "=", "=3D")
	unescaped = strings.NewReplacer("=3A", ":", "=3D", "=")
	globbed   = strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`, "]", `\]`)
)

// keyOf returns the key of a path, without the prefix.
func keyOf(name string) string {
	if !strings.Contains(name, ":") {
		return strings.ReplaceAll(name, "/", ":")
	}
	var parts []string
	for part := range strings.SplitSeq(name, "/") {
		if strings.Contains(part, ":") {
			parts, part = append(parts, ""), escaped.Replace(part)
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, ":")
}

// found returns what a key without its prefix is. What is no path is named by what follows
// the last folder in it.
func found(key string) formats.Found {
	var names []string
	for rest := key; ; {
		part, next, more := strings.Cut(rest, ":")
		if part == "" && more {
			part, next, more = strings.Cut(next, ":")
			name := unescaped.Replace(part)
			if !strings.Contains(name, ":") || escaped.Replace(name) != part {
				return odd(names, rest)
			}
			part = name
		}
		if formats.CheckPath(part) != nil {
			return odd(names, rest)
		}
		names = append(names, part)
		if !more {
			return formats.Found{Path: strings.Join(names, "/"), Entry: formats.Entry{Name: part}}
		}
		rest = next
	}
}

func odd(names []string, rest string) formats.Found {
	rest = cmp.Or(strings.ReplaceAll(rest, "/", ":"), ":")
	return formats.Found{Path: path.Join(strings.Join(names, "/"), rest), Entry: formats.Entry{Name: rest, Size: -1}}
}
