package layouts

import (
	"path"
	"unicode"
	"unicode/utf8"
)

// Names are the paths of a folder of files, so that no two units have one file on any system,
// nor one a file where another one has a folder. Who shows several units asks for those first
// whose Place has no other, which keep it, and then for the others in the order of their first
// records: then each has the same name wherever it is shown. It is not safe for concurrent use.
type Names struct {
	files map[string]bool   // of files, and of folders that are a unit's
	dirs  map[string]string // of folders above them -> as it is spelled; "": in several ways
}

// Take has a path be that of a file.
func (n *Names) Take(path string) { n.take(path) }

// Place gives a unit a path: where it has its files, or where that is taken the place apart.
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
			n.dirs[FoldedName(d)] = "" // whatever comes, it is not as all of them are
		}
	}
}

// isFree reports whether no other unit has a place. A folder may hold files that are units of
// their own.
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

// FoldedName is what a path is on a system that tells names apart by neither case nor Unicode
// form. It is coarse: what is taken for equal without being it only has another name.
func FoldedName(name string) string {
	b := make([]byte, 0, len(name))
	base := false // the last one stands there
	for _, r := range name {
		plain, ok := r, r < utf8.RuneSelf
		if !ok {
			plain, ok = asASCII[r]
		}
		switch {
		case ok:
			b = append(b, byte(unicode.ToLower(plain)))
		case base && unicode.Is(unicode.M, r):
			b = b[:len(b)-1] // with what it is a mark of it may be one character
		}
		base = ok
	}
	return string(b)
}

// asASCII are the characters that Unicode takes for one of ASCII.
var asASCII = map[rune]rune{'\u037e': ';', '\u1fef': '`', '\u212a': 'k'}
