package bucket

import (
	"strings"

	"github.com/tallylog/tally/internal/disk/filename"
	"github.com/tallylog/tally/internal/formats"
)

// found returns what an object of a name is, without what is known of it.
func found(name string) formats.Found {
	path, ok := filename.OfText(name)
	if !ok || formats.CheckPath(path) != nil {
		odd := strings.ReplaceAll(name, "/", ":")
		return formats.Found{Path: odd, Entry: formats.Entry{Name: odd, Size: -1}}
	}
	return formats.Found{Path: path, Entry: formats.Entry{Name: path[strings.LastIndexByte(path, '/')+1:]}}
}
