package taverndir

import (
	"fmt"
	"path"
	"strings"
	"unicode/utf8"

	"github.com/tallylog/tally/internal/layouts"
)

// Folders of the live layout, and the kinds of the documents in them.
const (
	docsDir      = "docs"
	workflowsDir = "workflows"
	overlaysDir  = "overlays"
	agentsDir    = "agents"
	servitorsDir = "servitors"
)

// mdSuffix is not part of an id. jsonSuffix is the suffix of workflows.
const (
	mdSuffix   = ".md"
	jsonSuffix = ".json"
)

// kinds are the kinds of documents that have a folder.
var kinds = []struct{ kind, dir, suffix string }{
	{"doc", docsDir, mdSuffix},
	{"workflow", workflowsDir, jsonSuffix},
	{"overlay", overlaysDir, mdSuffix},
}

// pathOf returns the path of a document in its folder. A name with the kind's suffix stands for the id without it. If
// suffixed is set, or if the id itself ends in the suffix, the path gets one. Two ids never have the same path, and
// idOf is the inverse, except for ids with a part that is too long for a file name.
func pathOf(id, suffix string, suffixed bool) string {
	name := pathOfID(id)
	if suffixed || strings.HasSuffix(name, suffix) {
		name += suffix
	}
	return name
}

func pathOfID(id string) string {
	parts := strings.Split(id, "/")
	for i, p := range parts {
		if p == "" || p[0] == '.' {
			return flat(id)
		}
		parts[i] = layouts.FileName(p)
	}
	return path.Join(parts...)
}

// flat returns a single file name for an id, which is never hidden.
func flat(id string) string {
	name := layouts.FileName(id)
	if strings.HasPrefix(name, ".") {
		name = "=2E" + name[1:]
	}
	return name
}

// apart returns another path for a document whose name clashes on some file systems with that of another document. The
// name ends in the kind's suffix. The path stands for the same id, and never lies in a folder that apart renames.
func apart(name string) string {
	parts := strings.Split(name, "/")
	last := len(parts) - 1
	for i, p := range parts[:last] {
		if parts[i] = apartDir(p); parts[i] == p { // this folder has no other spelling, so the file leaves it
			return spellOut(strings.ReplaceAll(name, "/", "=2F"), 0)
		}
	}
	parts[last] = spellOut(parts[last], 0)
	return strings.Join(parts, "/")
}

// apartDir is apart for the name of a folder.
func apartDir(name string) string { return spellOut(name, 1) }

// spellOut escapes the first and the last characters of a name, and all characters that may make some file systems
// confuse it with another name.
func spellOut(name string, last int) string {
	var b strings.Builder
	for i := 0; i < len(name); i++ {
		switch c := name[i]; {
		case isEscape(name[i:]):
			b.WriteString(name[i : i+3])
			i += 2
		case 'A' <= c && c <= 'Z' || c >= utf8.RuneSelf || c == '=' || i == 0 || i >= len(name)-last:
			fmt.Fprintf(&b, "=%02X", c)
		default:
			b.WriteByte(c)
		}
	}
	if b.Len() > 250 {
		return name // only the file's name is lost
	}
	return b.String()
}

func isEscape(s string) bool {
	const hex = "0123456789ABCDEF"
	return len(s) >= 3 && s[0] == '=' && strings.IndexByte(hex, s[1]) >= 0 && strings.IndexByte(hex, s[2]) >= 0
}

// idOf returns the id for a path in the folder of a kind.
func idOf(name, suffix string) string {
	if base := strings.TrimSuffix(name, suffix); base != "" && !strings.HasSuffix(base, "/") {
		name = base
	}
	var b strings.Builder
	for i := 0; i < len(name); i++ {
		if isEscape(name[i:]) {
			b.WriteByte(unhex(name[i+1])<<4 | unhex(name[i+2]))
			i += 2
			continue
		}
		b.WriteByte(name[i])
	}
	return b.String()
}

func unhex(c byte) byte {
	if c <= '9' {
		return c - '0'
	}
	return c - 'A' + 10
}

// isSkipped reports whether a file is hidden, or left by an editor.
func isSkipped(name string) bool {
	return isHidden(name) || strings.HasSuffix(name, "~") || strings.HasSuffix(name, ".swp") || strings.HasPrefix(name, "#") && strings.HasSuffix(name, "#")
}

func isHidden(name string) bool { return strings.HasPrefix(name, ".") }

// slug returns the name of an agent's folder, made from the agent's name as in the original.
func slug(name string) string {
	name = strings.ReplaceAll(strings.ToLower(strings.ToValidUTF8(name, "_")), " ", "-")
	if name == "" {
		name = "agent"
	}
	return flat(name)
}
