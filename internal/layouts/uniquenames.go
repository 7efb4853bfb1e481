package layouts

import (
	"path"
	"unicode"
	"unicode/utf8"
)

// Names assigns paths in a folder so that no two entries share a file on any system, and no file has the path of a
// folder. Callers first assign the entries without Location.Apart, which always get their path, then the others in
// the order of their first records. So an entry has the same path in every folder. Names is not safe for concurrent
// use.
type Names struct {
	files map[string]bool   // files, and folders of entries
	dirs  map[string]string // folders above them, by folded name -> as spelled; "": in several spellings
}

// Take reserves the path of a file.
func (n *Names) Take(name string) { n.take(name) }

// Assign returns the path for an entry: its Path, or Apart if that is taken.
func (n *Names) Assign(l Location) string {
	name := l.Path
	if l.Apart != "" && !n.isFree(l) {
		name = l.Apart
	}
	n.take(name)
	for _, f := range l.Files {
		n.files[FoldedName(path.Join(name, f))] = true
	}
	return name
}

func (n *Names) take(name string) {
	if n.files == nil {
		n.files, n.dirs = make(map[string]bool), make(map[string]string)
	}
	n.files[FoldedName(name)] = true
	for d := path.Dir(name); d != "."; d = path.Dir(d) {
		if have, ok := n.dirs[FoldedName(d)]; !ok {
			n.dirs[FoldedName(d)] = d
		} else if have != d {
			n.dirs[FoldedName(d)] = "" // no later spelling equals all of them
		}
	}
}

// isFree reports whether no other entry uses a location. A folder may contain files that are entries of their own.
func (n *Names) isFree(l Location) bool {
	have, dir := n.dirs[FoldedName(l.Path)]
	if n.files[FoldedName(l.Path)] || dir && !(l.Folder && have == l.Path) {
		return false
	}
	for _, f := range l.Files {
		if n.files[FoldedName(path.Join(l.Path, f))] {
			return false
		}
	}
	for d := path.Dir(l.Path); d != "."; d = path.Dir(d) {
		if have, ok := n.dirs[FoldedName(d)]; n.files[FoldedName(d)] || ok && have != d {
			return false
		}
	}
	return true
}

// FoldedName returns the form of a path that is equal for names that some system treats as equal, by case or Unicode
// form. It is coarse: if it equates different names, one of them only gets another path.
func FoldedName(name string) string {
	b := make([]byte, 0, len(name))
	base := false // the last rune was kept
	for _, r := range name {
		plain, ok := r, r < utf8.RuneSelf
		if !ok {
			plain, ok = asASCII[r]
		}
		switch {
		case ok:
			b = append(b, byte(unicode.ToLower(plain)))
		case base && unicode.Is(unicode.M, r):
			b = b[:len(b)-1] // base and mark may be one composed character
		}
		base = ok
	}
	return string(b)
}

// asASCII maps the characters that Unicode treats as equal to an ASCII character.
var asASCII = map[rune]rune{'\u037e': ';', '\u1fef': '`', '\u212a': 'k'}
