package tavern

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"golang.org/x/text/unicode/norm"
)

// Beginnings of the names under which session ids are shown.
const (
	projectSetting = "com.tavern.jake.session."
	agentSetting   = "com.tavern.agent.session."
)

// PathKey is a path as the name of a key has it: each / and _ is a -. Several paths have one
// key, so a project is known by its path; see [Personal.ProjectByKey].
func PathKey(path string) string { return strings.NewReplacer("/", "-", "_", "-").Replace(path) }

// ProjectKey is the name under which the session of a project is shown.
func ProjectKey(path string) string { return projectSetting + PathKey(path) }

// AgentKey is the name under which the session of an agent is shown.
func AgentKey(id string) string { return agentSetting + id }

// VendorKey is a path as Claude Code names the folder of a project's transcripts: links
// resolved as far as the path exists, composed (NFC), and each character that is not one of
// A-Z, a-z and 0-9 a -, or two of them if it takes two units of UTF-16. Folders have no
// more than [VendorFolder] compares.
func VendorKey(path string) string {
	var b strings.Builder
	for _, r := range norm.NFC.String(realPath(path)) {
		switch {
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9':
			b.WriteRune(r)
		case r > 0xFFFF:
			b.WriteString("--")
		default:
			b.WriteByte('-')
		}
	}
	return b.String()
}

// maxVendorKey is how much of a key a folder's name has: behind a longer one's beginning
// stand a - and a hash.
const maxVendorKey = 200

// VendorFolder reports whether a folder may be that of the project of a key.
func VendorFolder(folder, key string) bool {
	if len(key) <= maxVendorKey {
		return folder == key
	}
	return strings.HasPrefix(folder, key[:maxVendorKey]+"-")
}

// realPath resolves the links of a path as far as it exists. One that is relative is so to
// the working directory.
func realPath(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		path = abs
	}
	return resolvedPath(path)
}

func resolvedPath(path string) string {
	real, err := filepath.EvalSymlinks(path)
	if err == nil {
		return real
	}
	if dir := filepath.Dir(path); dir != path && errors.Is(err, fs.ErrNotExist) {
		return filepath.Join(resolvedPath(dir), filepath.Base(path))
	}
	return path
}

// samePath reports whether two paths name one folder, whatever links lead there and however
// their characters are composed.
func samePath(a, b string) bool {
	return a == b || norm.NFC.String(realPath(a)) == norm.NFC.String(realPath(b))
}

// AmbiguousError says that a key is that of several projects.
type AmbiguousError struct {
	Key   string
	Paths []string // of the projects, sorted
}

func (e *AmbiguousError) Error() string {
	return fmt.Sprintf("the key %q is that of %d projects: %q", e.Key, len(e.Paths), e.Paths)
}
