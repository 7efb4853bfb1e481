package bucket

import (
	"strings"

	"github.com/tallylog/tally/internal/disk/filename"
	"github.com/tallylog/tally/internal/layouts"
)

// found returns the file that an object's name stands for, without its size and times.
func found(name string) layouts.Found {
	path, ok := filename.OfText(name)
	if !ok || layouts.CheckPath(path) != nil {
		odd := strings.ReplaceAll(name, "/", ":")
		return layouts.Found{Path: odd, FileInfo: layouts.FileInfo{Name: odd, Size: -1}}
	}
	return layouts.Found{Path: path, FileInfo: layouts.FileInfo{Name: path[strings.LastIndexByte(path, '/')+1:]}}
}
