package tree

import (
	"cmp"
	"path"
	"slices"

	"github.com/tallylog/tally/internal/layouts"
)

// names counts the paths that entries want, to detect paths that some system treats as equal. Without such conflicts,
// each entry gets its path.
type names struct {
	wanted    map[string]*claim // by folded path
	contested int
}

// claim counts the entries that want a path.
type claim struct {
	files   int            // number of entries that want it as a file
	folders int            // number of entries that want it as a folder
	dirs    map[string]int // spelling of the folder -> number of entries in it
}

func newNames() names { return names{wanted: make(map[string]*claim)} }

func (c *claim) isContested() bool {
	return c.files+c.folders > 1 || c.files == 1 && len(c.dirs) > 0 || len(c.dirs) > 1
}

// add counts the wanted path of an entry, times times. A negative number removes it.
func (n *names) add(u *entry, times int) {
	if u.want == "" {
		return
	}
	n.change(u.want, func(c *claim) {
		if u.folder {
			c.folders += times
			c.in(u.want, times)
		} else {
			c.files += times
		}
	})
	for _, f := range u.within {
		n.change(path.Join(u.want, f), func(c *claim) { c.files += times })
	}
	for d := path.Dir(u.want); d != "."; d = path.Dir(d) {
		n.change(d, func(c *claim) { c.in(d, times) })
	}
}

func (c *claim) in(dir string, times int) {
	if c.dirs == nil {
		c.dirs = make(map[string]int)
	}
	if c.dirs[dir] += times; c.dirs[dir] == 0 {
		delete(c.dirs, dir)
	}
}

func (n *names) change(p string, do func(*claim)) {
	key := layouts.FoldedName(p)
	c := n.wanted[key]
	if c == nil {
		c = &claim{}
		n.wanted[key] = c
	}
	before := c.isContested()
	do(c)
	switch after := c.isContested(); {
	case after && !before:
		n.contested++
	case before && !after:
		n.contested--
	}
	if c.files+c.folders == 0 && len(c.dirs) == 0 {
		delete(n.wanted, key)
	}
}

// assignPaths chooses the path of each entry. Entries without an alternative path choose first, then the others by their
// first record.
func assignPaths(list []*entry) {
	slices.SortStableFunc(list, func(a, b *entry) int {
		if x, y := a.apart == "", b.apart == ""; x != y {
			if x {
				return -1
			}
			return 1
		}
		return cmp.Compare(a.first, b.first)
	})
	var taken layouts.Names
	for _, u := range list {
		u.path = taken.Assign(layouts.Location{Path: u.want, Apart: u.apart, Folder: u.folder, Files: u.within})
	}
}
