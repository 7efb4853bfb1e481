package keeper

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
	"github.com/tallylog/tally/internal/storedir"
)

// HeldError reports that a folder belongs to the tree of another store.
type HeldError struct {
	Place string // the folder, or the location on a server
	Store string // directory of the other store; "": unknown
	File  string // contains the claim; the user may remove it if the other store has given the folder up
}

func (e *HeldError) Error() string {
	return fmt.Sprintf("%s shows the store %s, as %s says: remove that file if it no longer does", e.Place, cmp.Or(e.Store, "of another process"), e.File)
}

// claim records the store that a folder belongs to.
type claim struct {
	Place string `json:"place"`
	Store string `json:"store"` // the store's directory; "": a store in memory
}

// claim claims the tree's folder for a store, as long as the store exists: if two stores shared a folder, each would
// take the other's files for a user's edits. If another store has the folder, the error is a *HeldError. state is the
// folder for claims; if it is "", nothing is claimed.
func (k *keptTree) claim(state, store string) error {
	if state == "" {
		return nil
	}
	dir := filepath.Join(state, folderName)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	sum := sha256.Sum256([]byte(k.Location()))
	path := filepath.Join(dir, hex.EncodeToString(sum[:16])+".json")
	held := &HeldError{Place: k.Location(), File: path}
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
		return fmt.Errorf("%s may show another store: %w: if it does not, remove %s", k.Location(), err, path)
	}
	before := claimed.Store
	if info, err := storedir.Inspect(before); before != "" && before != store && (err != nil || info.State == storedir.Present) {
		held.Store = before
		return held
	}
	if store == "" || store == before {
		return nil
	}
	text, err := statefile.Encode(claim{k.Location(), store})
	if err != nil {
		return err
	}
	if err := f.Truncate(0); err != nil {
		return err
	}
	_, err = f.WriteAt(text, 0)
	return err
}

// claimIn reads a claim. An empty file is not a claim: it was created for its lock.
func claimIn(path string) (c claim, err error) {
	text, err := os.ReadFile(path)
	if err != nil || len(text) == 0 {
		return c, err
	}
	return c, statefile.Decode(path, text, 0, &c)
}
