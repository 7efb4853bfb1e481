package redis

import (
	"cmp"
	"path"
	"strings"

	"github.com/tallylog/tally/internal/layouts"
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

// found returns the file that a key without its prefix stands for. If the key is not a path, the name is the part
// after the last folder in it.
func found(key string) layouts.Found {
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
		if layouts.CheckPath(part) != nil {
			return odd(names, rest)
		}
		names = append(names, part)
		if !more {
			return layouts.Found{Path: strings.Join(names, "/"), FileInfo: layouts.FileInfo{Name: part}}
		}
		rest = next
	}
}

func odd(names []string, rest string) layouts.Found {
	rest = cmp.Or(strings.ReplaceAll(rest, "/", ":"), ":")
	return layouts.Found{Path: path.Join(strings.Join(names, "/"), rest), FileInfo: layouts.FileInfo{Name: rest, Size: -1}}
}
