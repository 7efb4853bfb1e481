package tallydir

import (
	"os"
	"path/filepath"
	"slices"

	"github.com/tallylog/tally/stores/internal/sessiondir"
)

var shape = sessiondir.Shape{
	Layout: Format, Sessions: conversations, Inside: ".tally",
	IsRoot:     func(dir string) bool { return isDir(filepath.Join(dir, conversations)) },
	HasSession: looksLikeConversation,
	Nothing:    "holds neither conversations/ nor a conversation",
}

// locate finds the root for a path that a user gave.
func locate(path string) (sessiondir.Location, error) {
	at, err := shape.Find(path)
	if err != nil {
		return at, err
	}
	return at.Settled()
}

func isDir(name string) bool {
	info, err := os.Stat(name)
	return err == nil && info.IsDir()
}

// looksLikeConversation reports whether a folder has one of a conversation's files.
func looksLikeConversation(dir string) bool {
	isIn := func(name string) bool { return sessiondir.IsFile(filepath.Join(dir, name)) }
	return slices.ContainsFunc([]string{metaName, turnsName, trajectoryName, tracesName}, isIn) || isDir(filepath.Join(dir, "runs"))
}
