package taverndir

import (
	"fmt"
	"path"
	"strings"
	"unicode/utf8"

	"github.com/tallylog/tally/formats"
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
		parts[i] = formats.FileName(p)
	}
	return path.Join(parts...)
}

// flat is one name for an id that would be no path, or a hidden one.
func flat(id string) string {
	name := formats.FileName(id)
	if strings.HasPrefix(name, ".") {
		name = "=2E" + name[1:]
	}
	return name
}

// apart is a path in place of one that some system takes for that of another document: the
// first character of each part, and every one that could be why, is spelled as its bytes. It
// stands for the same id.
func apart(name string) string {
	parts := strings.Split(name, "/")
	for i, p := range parts {
		var b strings.Builder
		for j := 0; j < len(p); j++ {
			switch c := p[j]; {
			case isEscape(p[j:]):
				b.WriteString(p[j : j+3])
				j += 2
			case 'A' <= c && c <= 'Z' || c >= utf8.RuneSelf || c == '=' || j == 0:
				fmt.Fprintf(&b, "=%02X", c)
			default:
				b.WriteByte(c)
			}
		}
		if parts[i] = b.String(); len(parts[i]) > 250 {
			parts[i] = p // then it stays as it is: what is lost is the name of the file alone
		}
	}
	return strings.Join(parts, "/")
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

// folded is what a path is on a system that tells names apart by neither case nor Unicode
// form. It is coarse: what is taken for equal without being it is only spelled out.
func folded(name string) string {
	return strings.Map(func(r rune) rune {
		if r >= utf8.RuneSelf {
			return -1
		}
		return r
	}, strings.ToLower(name))
}

// taken are the paths of an export, so that no two are one file, nor one a file and a folder.
type taken struct {
	files map[string]bool
	dirs  map[string]string // folded -> as it is spelled
}

func newTaken() *taken { return &taken{make(map[string]bool), make(map[string]string)} }

// place returns a path that nothing else has: the one asked for, or one that stands for the
// same id.
func (t *taken) place(dir, name string) string {
	if !t.free(path.Join(dir, name)) {
		name = apart(name)
	}
	full := path.Join(dir, name)
	t.take(full)
	return full
}

// take has a path be that of a file.
func (t *taken) take(full string) {
	t.files[folded(full)] = true
	for d := path.Dir(full); d != "."; d = path.Dir(d) {
		if _, ok := t.dirs[folded(d)]; !ok {
			t.dirs[folded(d)] = d
		}
	}
}

func (t *taken) free(full string) bool {
	if _, dir := t.dirs[folded(full)]; dir || t.files[folded(full)] {
		return false
	}
	for d := path.Dir(full); d != "."; d = path.Dir(d) {
		if have, ok := t.dirs[folded(d)]; t.files[folded(d)] || ok && have != d {
			return false
		}
	}
	return true
}

// isSkipped reports whether a file is hidden, or left by an editor beside the one it edits.
func isSkipped(name string) bool {
	return strings.HasPrefix(name, ".") || strings.HasSuffix(name, "~") || strings.HasSuffix(name, ".swp") || strings.HasPrefix(name, "#") && strings.HasSuffix(name, "#")
}

// slug is the name of an agent's folder, as the original makes it of the agent's name.
func slug(name string) string {
	name = strings.ReplaceAll(strings.ToLower(strings.ToValidUTF8(name, "_")), " ", "-")
	if name == "" {
		name = "agent"
	}
	return flat(name)
}
