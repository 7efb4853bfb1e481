package erratadir

import (
	"io"
	"os"
	"path/filepath"
	"regexp"

	"github.com/tallylog/tally/stores/internal/sessiondir"
)

var shape = sessiondir.Shape{
	Layout: Format, Sessions: sessions, Inside: "data",
	IsRoot:     looksLikeRoot,
	HasSession: looksLikeSession,
	Nothing:    "holds neither sessions nor prompts",
}

// locate finds the root for a path that a user gave.
func locate(path string) (sessiondir.Location, error) {
	at, err := shape.Find(path)
	if err != nil {
		return at, err
	}
	if at.Name == "data" { // as most are called: that tells nothing
		at.Name = filepath.Base(filepath.Dir(at.Root))
	}
	return at.Settled()
}

// looksLikeSession reports whether a folder has one of a session's own files.
func looksLikeSession(dir string) bool {
	return sessiondir.IsFile(filepath.Join(dir, metadataName)) || sessiondir.IsFile(filepath.Join(dir, contentName))
}

// looksLikeRoot reports whether a folder holds sessions, prompts, or the history
// of the oldest form.
func looksLikeRoot(dir string) bool {
	history := filepath.Join(dir, historyName)
	return sessiondir.Shape{HasSession: looksLikeSession}.HoldsSession(filepath.Join(dir, sessions)) ||
		sessiondir.IsFile(filepath.Join(dir, promptsName)) || sessiondir.IsFile(history) && isHistory(os.Open(history))
}

// historyHead is how the oldest history begins.
var historyHead = regexp.MustCompile(`^(\x{feff})?\s*\{\s*"(?:[^"\\]|\\.)*"\s*:\s*\[\s*(\]|\{\s*"(?i:role)"\s*:)`)

// isHistory reports whether a file that was opened begins as the oldest history does.
func isHistory(r io.ReadCloser, err error) bool {
	if err != nil {
		return false
	}
	defer r.Close()
	head := make([]byte, 4<<10)
	n, _ := io.ReadFull(r, head)
	return historyHead.Match(head[:n])
}
