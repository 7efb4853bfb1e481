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

// mdSuffix is not part of an id; jsonSuffix is that of workflows.
const (
	mdSuffix   = ".md"
	jsonSuffix = ".json"
)

// kinds are those of the documents that have a folder.
var kinds = []struct{ kind, dir, suffix string }{
	{"doc", docsDir, mdSuffix},
	{"workflow", workflowsDir, jsonSuffix},
	{"overlay", overlaysDir, mdSuffix},
}

// pathOf returns the path of a document in its folder. A name that ends in the kind's suffix
// stands for the id without it: suffixed says whether it is to have that, as it has to where
// the id ends so itself. Two ids never have one path, and idOf finds the id of each, but for
// those with a part that is too long for a name.
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

// flat is one name for an id that would be no path, or a hidden one.
func flat(id string) string {
	name := layouts.FileName(id)
	if strings.HasPrefix(name, ".") {
		name = "=2E" + name[1:]
	}
	return name
}

// apart is a path in place of one that some system takes for that of another document, of a
// name that ends in the kind's suffix. It stands for the same id, and is no path of a folder in
// which other ones are apart.
func apart(name string) string {
	parts := strings.Split(name, "/")
	last := len(parts) - 1
	for i, p := range parts[:last] {
		if parts[i] = apartDir(p); parts[i] == p { // this folder has no second spelling, so the file leaves it
			return spellOut(strings.ReplaceAll(name, "/", "=2F"), 0)
		}
	}
	parts[last] = spellOut(parts[last], 0)
	return strings.Join(parts, "/")
}

// apartDir is apart for the name of a folder.
func apartDir(name string) string { return spellOut(name, 1) }

// spellOut has the first character of a name, the last ones, and every one that could be why some
// system takes it for another one stand as their bytes.
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
		return name // what is lost is the name of the file alone
	}
	return b.String()
}

func isEscape(s string) bool {
	const hex = "0123456789ABCDEF"
	return len(s) >= 3 && s[0] == '=' && strings.IndexByte(hex, s[1]) >= 0 && strings.IndexByte(hex, s[2]) >= 0
}

// idOf returns the id that a path in the folder of a kind stands for.
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

// isSkipped reports whether a file is hidden, or left by an editor beside the one it edits.
func isSkipped(name string) bool {
	return isHidden(name) || strings.HasSuffix(name, "~") || strings.HasSuffix(name, ".swp") || strings.HasPrefix(name, "#") && strings.HasSuffix(name, "#")
}

func isHidden(name string) bool { return strings.HasPrefix(name, ".") }

// slug is the name of an agent's folder, as the original makes it of the agent's name.
func slug(name string) string {
	name = strings.ReplaceAll(strings.ToLower(strings.ToValidUTF8(name, "_")), " ", "-")
	if name == "" {
		name = "agent"
	}
	return flat(name)
}
