package tallydir

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"github.com/tallylog/tally/events"
)

// documentOf names the document of a file that is kept whole.
func documentOf(ns, root, path string) events.Subject {
	id := root + "/" + path
	if len(id) > events.MaxIDLen {
		dir := ""
		if strings.HasPrefix(path, conversations+"/") && strings.Count(path, "/") > 1 {
			dir = conversations + "/=~/" // as many folders as tell a session's file from the root's
		}
		sum := sha256.Sum256([]byte(path))
		id = root[:min(len(root), 255)] + "/" + dir + "=~" + hex.EncodeToString(sum[:])
	}
	return events.Document(ns, events.KindFile, id)
}

// isRootFile reports whether a document of kind file is one of a root itself, not
// of a session.
func isRootFile(id, root string) bool {
	path, ok := strings.CutPrefix(id, root+"/")
	rest, _ := strings.CutPrefix(path, conversations+"/")
	return ok && !strings.Contains(rest, "/")
}
