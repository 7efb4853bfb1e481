package tallydir

import (
	"strings"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/stores/internal/foreign"
)

// documentOf names the document of a file that is kept whole.
func documentOf(ns, root, path string) events.Subject {
	dir := ""
	if strings.HasPrefix(path, conversations+"/") && strings.Count(path, "/") > 1 {
		dir = conversations + "/=~/" // as many folders as tell a session's file from the root's
	}
	return foreign.DocumentOf(ns, root, path, dir)
}

// isRootFile reports whether a file is one of a root itself, not of a session.
func isRootFile(path string) bool {
	rest, _ := strings.CutPrefix(path, conversations+"/")
	return !strings.Contains(rest, "/")
}
