package record

import (
	"fmt"
	"path/filepath"

	"github.com/tallylog/tally/cmd/internal/cmdutil"
	"github.com/tallylog/tally/internal/render/plain"
)

// sayLinks prints the links to folders in the locations. Links are not followed, so that no link leads out of a folder
// of sessions or in a circle.
func sayLinks(a *cmdutil.App, locations []location) {
	said := make(map[string]bool)
	for _, p := range locations {
		for _, link := range cmdutil.LinksIn(filepath.Join(p.Root, filepath.FromSlash(p.Below))) {
			if to, err := filepath.EvalSymlinks(link); said[link] || err == nil && isFollowed(locations, to) {
				continue
			}
			said[link] = true
			fmt.Fprintf(a.Err, "%s: %s\n", plain.Printable(link), plain.Printable(cmdutil.LinkReason(link)))
		}
	}
}

// isFollowed reports whether a folder is a location or is in one.
func isFollowed(locations []location, dir string) bool {
	for _, p := range locations {
		if name, err := filepath.Rel(p.Root, dir); err == nil && filepath.IsLocal(name) && p.Has(filepath.ToSlash(name)) {
			return true
		}
	}
	return false
}
