package tree

import (
	"cmp"
	"path"
	"slices"

	"github.com/tallylog/tally/internal/layouts"
)

// names counts what units want to be called, to know whether any two want names that some
// system takes for one. As long as none do, each has the one it wants.
type names struct {
	wanted    map[string]*claim // by folded path
	contested int
}

// claim is who wants a path.
type claim struct {
	files   int            // units that want it for a file
	folders int            // and for a folder
	dirs    map[string]int // as it is spelled where it is a folder -> units in it
}

func newNames() names { return names{wanted: make(map[string]*claim)} }

func (c *claim) isContested() bool {
	return c.files+c.folders > 1 || c.files == 1 && len(c.dirs) > 0 || len(c.dirs) > 1
}

// add counts what a unit wants, n times; negative: it does so no longer.
func (n *names) add(u *unit, times int) {
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

// place chooses the path of each unit: those that can have no other one keep theirs, then
// those are asked first that began first.
func assignPaths(list []*unit) {
	slices.SortStableFunc(list, func(a, b *unit) int {
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
