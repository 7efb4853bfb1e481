package tavern

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"golang.org/x/text/unicode/norm"
)

// Prefixes of the names under which session ids are shown.
const (
	projectSetting = "com.tavern.jake.session."
	agentSetting   = "com.tavern.agent.session."
)

// PathKey returns a path as it appears in keys: each / and _ becomes a -. Several paths may have one key, so a project
// is identified by its path; see [Personal.ProjectByKey].
func PathKey(path string) string { return strings.NewReplacer("/", "-", "_", "-").Replace(path) }

// ProjectKey returns the name under which a project's session is shown.
func ProjectKey(path string) string { return projectSetting + PathKey(path) }

// AgentKey returns the name under which an agent's session is shown.
func AgentKey(id string) string { return agentSetting + id }

// VendorKey returns the name that Claude Code makes from a project's path for its folder of transcripts. It resolves
// links as far as the path exists and composes characters (NFC). Each character other than A-Z, a-z and 0-9 becomes a
// -, or two if it takes two UTF-16 code units. Long names are cut; compare with [VendorFolder].
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

// maxVendorKey is the length at which a folder's name is cut. After it follow a - and a hash.
const maxVendorKey = 200

// VendorFolder reports whether a folder may belong to the project with a key.
func VendorFolder(folder, key string) bool {
	if len(key) <= maxVendorKey {
		return folder == key
	}
	return strings.HasPrefix(folder, key[:maxVendorKey]+"-")
}

// realPath resolves the links of a path as far as it exists. A relative path is relative to the working directory.
func realPath(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		path = abs
	}
	return resolvedPath(path)
}

func resolvedPath(path string) string {
	resolved, err := filepath.EvalSymlinks(path)
	if err == nil {
		return resolved
	}
	if dir := filepath.Dir(path); dir != path && errors.Is(err, fs.ErrNotExist) {
		return filepath.Join(resolvedPath(dir), filepath.Base(path))
	}
	return path
}

// samePath reports whether two paths name one folder, after resolving links and composing characters.
func samePath(a, b string) bool {
	return a == b || norm.NFC.String(realPath(a)) == norm.NFC.String(realPath(b))
}

// AmbiguousError reports that several projects have a key.
type AmbiguousError struct {
	Key   string
	Paths []string // of the projects, sorted
}

func (e *AmbiguousError) Error() string {
	return fmt.Sprintf("the key %q belongs to %d projects: %q", e.Key, len(e.Paths), e.Paths)
}
