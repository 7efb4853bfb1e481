package record

import (
	"fmt"
	"path/filepath"

	"github.com/tallylog/tally/cmd/internal/cmdutil"
	"github.com/tallylog/tally/internal/render/plain"
)

// sayLinks names the links to folders that places hold: they are not followed, so that no
// link leads out of a folder of sessions or around in it.
func sayLinks(a *cmdutil.App, places []place) {
	said := make(map[string]bool)
	for _, p := range places {
		for _, link := range cmdutil.LinksIn(filepath.Join(p.Root, filepath.FromSlash(p.Below))) {
			if to, err := filepath.EvalSymlinks(link); said[link] || err == nil && isFollowed(places, to) {
				continue
			}
			said[link] = true
			fmt.Fprintf(a.Err, "%s: %s\n", plain.Printable(link), plain.Printable(cmdutil.LinkReason(link)))
		}
	}
}

// isFollowed reports whether a folder is one of the places, or lies in one.
func isFollowed(places []place, dir string) bool {
	for _, p := range places {
		if name, err := filepath.Rel(p.Root, dir); err == nil && filepath.IsLocal(name) && p.Has(filepath.ToSlash(name)) {
			return true
		}
	}
	return false
}
