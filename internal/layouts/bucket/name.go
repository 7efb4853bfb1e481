package bucket

import (
	"strings"

	"github.com/tallylog/tally/internal/disk/filename"
	"github.com/tallylog/tally/internal/layouts"
)

// found returns what an object of a name is, without what is known of it.
func found(name string) layouts.Found {
	path, ok := filename.OfText(name)
	if !ok || layouts.CheckPath(path) != nil {
		odd := strings.ReplaceAll(name, "/", ":")
		return layouts.Found{Path: odd, Entry: layouts.Entry{Name: odd, Size: -1}}
	}
	return layouts.Found{Path: path, Entry: layouts.Entry{Name: path[strings.LastIndexByte(path, '/')+1:]}}
}
