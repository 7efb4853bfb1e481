package embedded

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/tallylog/tally/internal/disk/lockfile"
	"github.com/tallylog/tally/internal/disk/statefile"
)

// TreeHeldError says that a folder shows another store.
type TreeHeldError struct {
	Place string
	Store string // "": it is not known which
	File  string // that says so, and can be removed if that store shall not have it any more
}

func (e *TreeHeldError) Error() string {
	return fmt.Sprintf("%s shows the store %s, as %s says: remove that file if it no longer does", e.Place, cmp.Or(e.Store, "of another process"), e.File)
}

// treeClaim is what stores of this user know of a folder.
type treeClaim struct {
	Place string `json:"place"`
	Store string `json:"store"` // "": one that ended with its process
}

// claim makes a folder this store's, for as long as that is there: two stores in one folder
// would each take the other's files for edits of its own.
func (k *treeKept) claim(state, store string) error {
	if state == "" {
		return nil // nobody knows where that is kept
	}
	dir := filepath.Join(state, treesDir)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	sum := sha256.Sum256([]byte(k.Location()))
	path := filepath.Join(dir, hex.EncodeToString(sum[:16])+".json")
	held := &TreeHeldError{Place: k.Location(), File: path}
	f, err := lockfile.Take(path)
	if errors.Is(err, lockfile.ErrLocked) {
		if c, err := claimIn(path); err == nil {
			held.Store = c.Store
		}
		return held
	}
	if err != nil {
		return err
	}
	k.ends = append(k.ends, f.Close)
	claimed, err := claimIn(path)
	if err != nil {
		return fmt.Errorf("%s may show another store: %w: remove %s if it does not", k.Location(), err, path)
	}
	was := claimed.Store
	if place, err := Look(was); was != "" && was != store && (err != nil || place.State == Present) {
		held.Store = was
		return held
	}
	if store == "" || store == was {
		return nil
	}
	text, err := statefile.Encode(treeClaim{k.Location(), store})
	if err != nil {
		return err
	}
	if err := f.Truncate(0); err != nil {
		return err
	}
	_, err = f.WriteAt(text, 0)
	return err
}

// claimIn reads a claim. A file without content is no claim: it was made for its lock.
func claimIn(path string) (c treeClaim, err error) {
	text, err := os.ReadFile(path)
	if err != nil || len(text) == 0 {
		return c, err
	}
	return c, statefile.Decode(path, text, 0, &c)
}
