package tavern

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/tallylog/tally/events"
)

// hashedPath is how the place of a path begins that is too long for a key.
const hashedPath = "sha256:"

// keyOfProject is the key of a project's setting. Unlike [ProjectKey] it is of this project
// alone.
func keyOfProject(path string) (string, error) {
	if isBroken("collide") { // by the key that the original had
		return ProjectKey(path), nil
	}
	switch {
	case path == "":
		return "", &events.InvalidError{Field: "path", Reason: "it is empty"}
	case len(projectSetting)+len(path) <= events.MaxIDLen && !strings.HasPrefix(path, hashedPath):
		return projectSetting + path, nil
	case !utf8.ValidString(path):
		return "", &events.InvalidError{Field: "path", Reason: fmt.Sprintf("it has %d bytes that are not UTF-8; so many must be", len(path))}
	}
	sum := sha256.Sum256([]byte(path))
	return projectSetting + hashedPath + hex.EncodeToString(sum[:]), nil
}
