package snapshot

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/disk/durable"
	"github.com/tallylog/tally/internal/rawjson"
)

// Files keeps snapshots as files below a directory:
//
//	<dir>/<namespace>/<kind>/<id>/<fold>.<version>.<offset>
//
// with the id escaped, and shortened with a hash if the name would be too long. The first line of a file is its Meta as
// JSON, the rest are the data. A file is written under a temporary name and renamed, so a crash leaves the old one, the
// new one, or none. Files are not synced, because snapshots may be lost.
type Files struct {
	dir string

	mu     sync.RWMutex // held for reading during Put of Since
	erased int          // number of calls of Erase; guarded by mu
}

// NewFiles returns the store below dir. The first write creates dir.
func NewFiles(dir string) *Files { return &Files{dir: dir} }

// Dir returns the directory of the files.
func (f *Files) Dir() string { return f.dir }

// header is the first line of a file.
type header struct {
	Subject string     `json:"subject"` // in NATS form
	Fold    string     `json:"fold"`
	Version int        `json:"version"`
	Offset  uint64     `json:"offset"`
	EventID string     `json:"eventId"`
	Live    []Interval `json:"live"`
	Hash    string     `json:"hash"`
	Kept    string     `json:"kept,omitempty"`
}

// maxName bounds the escaped ids that are used as file names unchanged.
const maxName = 200

func (f *Files) folder(sub events.Subject) string {
	name := events.EscapeID(sub.ID)
	if len(name) > maxName {
		sum := sha256.Sum256([]byte(sub.ID))
		name = name[:maxName-33] + "=" + hex.EncodeToString(sum[:16])
	}
	return filepath.Join(f.dir, sub.Namespace, sub.Kind, name)
}

func (f *Files) path(m Meta) string {
	return filepath.Join(f.folder(m.Subject), fmt.Sprintf("%s.%d.%s", m.Fold, m.Version, m.Offset.Padded()))
}

// parseName reads fold, version and offset from a file's name.
func parseName(name string) (fold string, version int, at events.Offset, ok bool) {
	parts := strings.Split(name, ".")
	if len(parts) != 3 || parts[0] == "" {
		return "", 0, 0, false
	}
	version, err := strconv.Atoi(parts[1])
	if err != nil {
		return "", 0, 0, false
	}
	at, err = events.ParseOffset(parts[2])
	return parts[0], version, at, err == nil
}

// List implements Store.
func (f *Files) List(_ context.Context, sub events.Subject, fold string) ([]Meta, error) {
	entries, err := os.ReadDir(f.folder(sub))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("snapshot: %w", err)
	}
	var list []Meta
	for _, e := range entries {
		if name, _, _, ok := parseName(e.Name()); !ok || name != fold {
			continue
		}
		path := filepath.Join(f.folder(sub), e.Name())
		if m, err := readMeta(path); err == nil && m.Subject == sub && f.path(m) == path {
			list = append(list, m)
		}
	}
	slices.SortFunc(list, newestFirst)
	return list, nil
}

// Get implements Store.
func (f *Files) Get(_ context.Context, m Meta) (Snapshot, error) {
	path := f.path(m)
	content, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Snapshot{}, ErrNotFound
	}
	if err != nil {
		return Snapshot{}, fmt.Errorf("snapshot: %w", err)
	}
	line, data, _ := bytes.Cut(content, []byte("\n"))
	got, err := parseHeader(path, line)
	if err != nil {
		return Snapshot{}, err
	}
	if got.Subject != m.Subject || got.Offset != m.Offset || got.Version != m.Version || got.Fold != m.Fold {
		return Snapshot{}, &CorruptError{path, "the header names another snapshot"}
	}
	if sum := Sum(data); sum != got.Hash {
		return Snapshot{}, &CorruptError{path, "the hash of the data is " + sum + ", not " + got.Hash}
	}
	return Snapshot{got, data}, nil
}

// Put implements Store.
func (f *Files) Put(_ context.Context, s Snapshot) error {
	h := header{s.Subject.NATS(), s.Fold, s.Version, uint64(s.Offset), s.EventID, s.Live, Sum(s.Data), s.Kept}
	if h.Live == nil {
		h.Live = []Interval{} // null would not be a list
	}
	line, err := rawjson.Marshal(h)
	if err != nil {
		return fmt.Errorf("snapshot: %v", err)
	}
	path := f.path(s.Meta)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("snapshot: %w", err)
	}
	if err := durable.Replace(path, append(append(line, '\n'), s.Data...), 0o600, durable.NoSync); err != nil {
		return fmt.Errorf("snapshot: %w", err)
	}
	return nil
}

// Delete implements Store.
func (f *Files) Delete(_ context.Context, m Meta) error {
	if err := os.Remove(f.path(m)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("snapshot: %w", err)
	}
	return nil
}

// All implements Store. It ignores files directly in the directory.
func (f *Files) All(ctx context.Context) iter.Seq2[Meta, error] {
	return func(yield func(Meta, error) bool) {
		// The walk ends only if the caller stops: every error is yielded.
		_ = filepath.WalkDir(f.dir, func(path string, d fs.DirEntry, err error) error {
			if err == nil {
				err = ctx.Err()
			}
			switch {
			case errors.Is(err, fs.ErrNotExist): // removed meanwhile, or nothing was ever written
				return nil
			case err != nil:
				if !yield(Meta{}, fmt.Errorf("snapshot: %w", err)) || ctx.Err() != nil {
					return fs.SkipAll
				}
				return nil
			case d.IsDir(), filepath.Dir(path) == filepath.Clean(f.dir):
				return nil
			case durable.IsTemporary(d.Name()): // a write that a crash interrupted
				return nil
			}
			m, err := readMeta(path)
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			if err == nil && f.path(m) != path {
				err = &CorruptError{path, "the header names another place"}
			}
			if !yield(m, err) {
				return fs.SkipAll
			}
			return nil
		})
	}
}

// Discard implements Store. It removes only files below the directory.
func (f *Files) Discard(_ context.Context, name string) error {
	rel, err := filepath.Rel(f.dir, name)
	if err != nil || !filepath.IsLocal(rel) || rel == "." {
		return fmt.Errorf("snapshot: %s is not below %s", name, f.dir)
	}
	if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("snapshot: %w", err)
	}
	return nil
}

// readMeta reads the first line of a file.
func readMeta(path string) (Meta, error) {
	file, err := os.Open(path)
	if err != nil {
		return Meta{}, fmt.Errorf("snapshot: %w", err)
	}
	defer file.Close()
	var line []byte
	buf := make([]byte, 4096)
	for len(line) < 16<<20 {
		n, err := file.Read(buf)
		if i := bytes.IndexByte(buf[:n], '\n'); i >= 0 {
			return parseHeader(path, append(line, buf[:i]...))
		}
		line = append(line, buf[:n]...)
		if err == io.EOF {
			break
		}
		if err != nil {
			return Meta{}, fmt.Errorf("snapshot: %w", err)
		}
	}
	return Meta{}, &CorruptError{path, "there is no header"}
}

func parseHeader(path string, line []byte) (Meta, error) {
	var h header
	if err := rawjson.Unmarshal(line, &h); err != nil {
		return Meta{}, &CorruptError{path, err.Error()}
	}
	sub, err := events.ParseNATS(h.Subject)
	if err != nil {
		return Meta{}, &CorruptError{path, err.Error()}
	}
	return Meta{sub, h.Fold, h.Version, events.Offset(h.Offset), h.EventID, h.Live, h.Hash, h.Kept}, nil
}
