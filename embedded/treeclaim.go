package embedded

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/tallylog/tally/internal/lockfile"
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

func (k *treeKept) lock(path string) error {
	f, err := lockfile.Take(path)
	if err == nil {
		k.ends = append(k.ends, f.Close)
	}
	return err
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
	sum := sha256.Sum256([]byte(k.Place()))
	path := filepath.Join(dir, hex.EncodeToString(sum[:16])+".json")
	held := &TreeHeldError{Place: k.Place(), File: path}
	f, err := lockfile.Take(path)
	if errors.Is(err, lockfile.ErrLocked) {
		held.Store = claimIn(path).Store
		return held
	}
	if err != nil {
		return err
	}
	k.ends = append(k.ends, f.Close)
	was := claimIn(path).Store
	if place, err := Look(was); was != "" && was != store && (err != nil || place.State == Present) {
		held.Store = was
		return held
	}
	if store == "" || store == was {
		return nil
	}
	text, err := json.Marshal(treeClaim{k.Place(), store})
	if err != nil {
		return err
	}
	if err := f.Truncate(0); err != nil {
		return err
	}
	_, err = f.WriteAt(append(text, '\n'), 0)
	return err
}

// claimIn reads a claim; one that cannot be read is none.
func claimIn(path string) (c treeClaim) {
	if text, err := os.ReadFile(path); err == nil {
		_ = json.Unmarshal(text, &c)
	}
	return c
}
