package quota

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/disk/durable"
	"github.com/tallylog/tally/internal/disk/lockfile"
	"github.com/tallylog/tally/internal/disk/statefile"
	"github.com/tallylog/tally/log"
)

// Limits maps scopes to limits in bytes.
type Limits map[string]int64

// Prefixes of scopes: the whole store, an owner of documents, a kind of documents.
const (
	Store = "store"
	owner = "owner:"
	kind  = "kind:"
)

// MaxLimit is the highest possible limit, in bytes.
const MaxLimit = 1 << 56

// FileName is the file of the limits in the directory of a store. Limits are not events, because every user of a store
// may append events. Only a user who can write to the directory can set limits.
const FileName = "limits.json"

const fileVersion = 1

// file is the content of the file of limits.
type file struct {
	Version int    `json:"version"`
	Limits  Limits `json:"limits"`
}

// CheckScope returns an *events.InvalidError if the text is not a scope.
func CheckScope(scope string) error {
	name, isKind := strings.CutPrefix(scope, kind)
	switch {
	case scope == Store:
		return nil
	case strings.HasPrefix(scope, owner):
		if !utf8.ValidString(scope) {
			return &events.InvalidError{Field: "scope", Reason: fmt.Sprintf("owner %q is not UTF-8", scope[len(owner):])}
		}
		return nil
	case isKind && Counts(events.Document("", name, "x")) && events.Document("", name, "x").Validate() == nil:
		return nil
	}
	return &events.InvalidError{Field: "scope", Reason: fmt.Sprintf("%q: want store, owner:NAME or kind:KIND of documents", scope)}
}

// checkLimit returns an *events.InvalidError if the number of bytes is out of range.
func checkLimit(bytes int64) error {
	if bytes < 0 || bytes > MaxLimit {
		return &events.InvalidError{Field: "limit", Reason: fmt.Sprintf("%d bytes: want 0 (no limit) to %d", bytes, int64(MaxLimit))}
	}
	return nil
}

// Counts reports whether a subject is a document that counts. A blob counts where a document refers to it. The log's
// own records of an append are not documents.
func Counts(sub events.Subject) bool {
	return !sub.IsSession() && sub.Kind != events.KindBlob && sub.Kind != events.KindUnit
}

// Load reads the limits of the store in a directory. If there is no file, there are no limits.
func Load(dir string) (Limits, error) {
	text, err := os.ReadFile(filepath.Join(dir, FileName))
	if errors.Is(err, fs.ErrNotExist) {
		return Limits{}, nil
	}
	if err != nil {
		return nil, err
	}
	return parse(filepath.Join(dir, FileName), text)
}

func parse(path string, text []byte) (Limits, error) {
	var f file
	err := statefile.Decode(path, text, fileVersion, &f)
	if newer, is := errors.AsType[*statefile.NewerError](err); is {
		return nil, fmt.Errorf("%w: %w: use the version of tally that wrote it", log.ErrNewer, newer)
	}
	if err != nil {
		return nil, err
	}
	for scope, bytes := range f.Limits {
		err := CheckScope(scope)
		if err == nil {
			err = checkLimit(bytes - 1)
		}
		if err != nil {
			return nil, &statefile.DamageError{Path: path, Err: err}
		}
	}
	if f.Limits == nil {
		f.Limits = Limits{}
	}
	return f.Limits, nil
}

// Set sets a limit of the store in a directory; 0 removes it. When Set returns, the limit is on disk and the owner of
// the store enforces it.
func Set(dir, scope string, bytes int64) error {
	if err := checkBoth(scope, bytes); err != nil {
		return err
	}
	lock, err := lockLimits(dir)
	if err != nil {
		return err
	}
	defer lock.Close()
	l, err := Load(dir)
	if err != nil {
		return err
	}
	if l[scope] = bytes; bytes == 0 {
		delete(l, scope)
	}
	if err := statefile.Write(filepath.Join(dir, FileName), file{fileVersion, l}, durable.WithSync); err != nil {
		return err
	}
	time.Sleep(2 * fresh) // by then the owner of the store has read the file
	return nil
}

// lockLimits locks the file of limits until the result is closed.
func lockLimits(dir string) (*os.File, error) {
	for giveUp := time.Now().Add(10 * time.Second); ; time.Sleep(fresh / 4) {
		lock, err := lockfile.Take(filepath.Join(dir, "limits.lock"))
		if !errors.Is(err, lockfile.ErrLocked) || time.Now().After(giveUp) {
			return lock, err
		}
	}
}

// fresh is how long the owner of a store uses the limits before it looks at the file again.
const fresh = 20 * time.Millisecond
