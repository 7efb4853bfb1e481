package errata

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/disk/durable"
)

// FileSnapshot is a file of the working tree before a run wrote to it.
type FileSnapshot struct {
	Path         string // relative to the working tree, or absolute and inside it
	Content      []byte
	DidNotExist  bool        // the run created the file: a rewind removes it
	Mode         fs.FileMode // permission bits; 0: unknown
	writtenByRun string      // hash of the content that the run wrote, "" if unknown
}

// WorkTree is the folder in which files are restored; files outside of it are never changed. The zero value has no
// folder, so files cannot be restored.
type WorkTree struct {
	Dir string
	// Report is called before a changed file is overwritten or removed. kept is the path of the copy. A file is
	// changed if it differs from the content that the run wrote. Default: none.
	Report func(name, kept string)
}

// absentHash is used as the hash of a missing file.
const absentHash = "absent"

// tree is an open WorkTree. It refuses paths outside of the folder, also through a symlink.
type tree struct {
	root *os.Root
	dir  string
	tell func(name, kept string)
	err  error // why the folder is not open
}

var errNoTree = errors.New("no working tree")

// open opens the folder. An error is returned for each file later.
func (w WorkTree) open() *tree {
	if w.Dir == "" {
		return &tree{err: errNoTree}
	}
	t := &tree{tell: w.Report}
	if t.dir, t.err = filepath.Abs(w.Dir); t.err == nil {
		t.root, t.err = os.OpenRoot(t.dir)
	}
	return t
}

func (t *tree) close() {
	if t.root != nil {
		t.root.Close()
	}
}

// name returns the path of a file relative to the tree, with slashes.
func (t *tree) name(file string) (string, error) {
	name := file
	if filepath.IsAbs(file) {
		rel, err := filepath.Rel(t.dir, file)
		if resolved, linked := filepath.EvalSymlinks(t.dir); err == nil && strings.HasPrefix(rel, "..") && linked == nil {
			rel, err = filepath.Rel(resolved, file)
		}
		if err != nil {
			return "", err
		}
		name = rel
	}
	if !filepath.IsLocal(name) || filepath.Clean(name) == "." {
		return "", fmt.Errorf("%s is outside the working tree", file)
	}
	return filepath.ToSlash(filepath.Clean(name)), nil
}

// found is the state of a file on disk.
type found struct {
	content []byte
	mode    fs.FileMode
	exists  bool
	link    bool
}

// hash returns the hash of the content, or absentHash.
func (f found) hash() string {
	if !f.exists {
		return absentHash
	}
	return hashOf(f.content)
}

func hashOf(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

func (t *tree) read(name string) (found, error) {
	info, err := t.root.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return found{}, nil
	}
	if err != nil {
		return found{}, err
	}
	link := info.Mode()&fs.ModeSymlink != 0
	if link {
		if info, err = t.root.Stat(name); err != nil {
			return found{}, err
		}
	}
	if !info.Mode().IsRegular() {
		return found{}, &fs.PathError{Op: "restore", Path: name, Err: errors.New("not a regular file")}
	}
	content, err := t.root.ReadFile(name)
	return found{content, info.Mode().Perm(), true, link}, err
}

// write replaces a file, completely or not at all. If the file is a symlink inside the tree, write changes its target
// in place.
func (t *tree) write(name string, content []byte, mode fs.FileMode, was found) error {
	if err := t.root.MkdirAll(path.Dir(name), 0o755); err != nil {
		return err
	}
	if was.link {
		return t.writeNew(name, content, mode)
	}
	temporary := path.Join(path.Dir(name), temporaryPrefix+uuid.NewString())
	err := t.writeNew(temporary, content, mode)
	if err == nil {
		err = t.root.Rename(temporary, name)
	}
	if err != nil {
		t.root.Remove(temporary)
	}
	return err
}

func (t *tree) writeNew(name string, content []byte, mode fs.FileMode) error {
	f, err := t.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err == nil {
		err = f.Chmod(mode)
	}
	if err == nil {
		err = durable.SyncFile(f)
	}
	return errors.Join(err, f.Close())
}

// temporaryPrefix begins the names of files that are being written.
const temporaryPrefix = ".tally-tmp-"

// started is the approximate start of this process.
var started = time.Now()

// sweep removes temporary files that a killed process left in the folders of the files to restore. It removes only
// files that are older than this process, so that no running call uses them.
func (t *tree) sweep(goals []fileGoal) {
	if t.err != nil {
		return
	}
	swept := make(map[string]bool)
	for _, g := range goals {
		name, err := t.name(g.path)
		dir := path.Dir(name)
		if err != nil || swept[dir] {
			continue
		}
		swept[dir] = true
		there, _ := fs.ReadDir(t.root.FS(), dir) // restoring the files reports the error
		for _, entry := range there {
			if !strings.HasPrefix(entry.Name(), temporaryPrefix) || !entry.Type().IsRegular() {
				continue
			}
			if info, err := entry.Info(); err == nil && info.ModTime().Before(started) {
				t.root.Remove(path.Join(dir, entry.Name()))
			}
		}
	}
}

// sync makes the changes durable: the names in the files' folders and in the folders above, which may be new. It
// syncs them even if this call changed nothing, because an interrupted call may have restored a file without syncing
// it. If a folder cannot be synced, its files have failed.
func (t *tree) sync(changes []FileChange) {
	synced := make(map[string]error)
	for i := range changes {
		c := &changes[i]
		for dir := path.Dir(c.Path); c.Err == nil; dir = path.Dir(dir) {
			if _, done := synced[dir]; !done {
				synced[dir] = t.syncDir(dir)
			}
			c.failed(synced[dir])
			if dir == "." {
				break
			}
		}
	}
}

// syncDir syncs a folder. It ignores a missing folder.
func (t *tree) syncDir(dir string) error {
	d, err := t.root.Open(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer d.Close()
	return durable.SyncDir(d)
}

// keep copies a file that is about to be overwritten to a new name beside it. If an equal copy exists, keep returns
// that.
func (t *tree) keep(name string, was found) (string, error) {
	for n := 0; ; n++ {
		beside := name + ".orig"
		if n > 0 {
			beside += "." + strconv.Itoa(n)
		}
		have, err := t.read(beside)
		switch {
		case err != nil:
			return "", err
		case !have.exists:
			return beside, t.write(beside, was.content, was.mode, have)
		case bytes.Equal(have.content, was.content):
			return beside, nil
		}
	}
}

// fileGoal is the target state of a file.
type fileGoal struct {
	path   string
	blob   events.DocRef // or events.Absent
	mode   fs.FileMode   // 0: the current mode, or 0644
	expect string        // expected hash of the current content; "" if unknown
}

// FileChange is the planned or completed change of one file.
type FileChange struct {
	Path    string
	Action  string        // restored, removed or failed
	Err     error         // why it failed
	Changed bool          // the file was changed since its snapshot
	Kept    string        // path of the copy of the changed file
	Before  events.DocRef // content on disk before, or events.Absent
	Mode    fs.FileMode   // its mode
}

// look returns the change that restoring a file would make, with the current file and the new content.
func look(ctx context.Context, st *tally.Store, t *tree, goal fileGoal) (change FileChange, was found, content []byte) {
	change = FileChange{Path: goal.path, Action: "restored"}
	if goal.blob == events.Absent {
		change.Action = "removed"
	}
	was, content, err := t.look(ctx, st, goal, &change)
	change.failed(err)
	return change, was, content
}

func (t *tree) look(ctx context.Context, st *tally.Store, goal fileGoal, change *FileChange) (was found, content []byte, err error) {
	if t.err != nil {
		return was, nil, t.err
	}
	name, err := t.name(goal.path)
	if err != nil {
		return was, nil, err
	}
	if was, err = t.read(name); err != nil {
		return was, nil, err
	}
	change.Path, change.Mode = name, was.mode
	target := absentHash
	if goal.blob != events.Absent {
		if content, err = blobOf(ctx, st, goal.blob); err != nil {
			return was, nil, err
		}
		target = hashOf(content)
	}
	have := was.hash()
	change.Changed = goal.expect != "" && was.exists && have != goal.expect && have != target
	return was, content, nil
}

// failed records an error, if there is one.
func (c *FileChange) failed(err error) {
	if err != nil {
		c.Action, c.Err = "failed", err
	}
}

// restore brings a file to its target state, and first stores the current content. A repeated call changes nothing.
func restore(ctx context.Context, st *tally.Store, t *tree, goal fileGoal) FileChange {
	change, was, content := look(ctx, st, t, goal)
	if change.Err == nil {
		change.failed(makeSo(ctx, st, t, goal, &change, was, content))
	}
	return change
}

func makeSo(ctx context.Context, st *tally.Store, t *tree, goal fileGoal, change *FileChange, was found, content []byte) (err error) {
	if change.Before, err = before(ctx, st, goal, was); err != nil {
		return err
	}
	if change.Changed {
		if change.Kept, err = t.keep(change.Path, was); err != nil {
			return fmt.Errorf("the file changed since its snapshot, and no copy can be kept: %w", err)
		}
		if t.tell != nil {
			t.tell(change.Path, change.Kept)
		}
	}
	if goal.blob == events.Absent {
		if !was.exists {
			return nil
		}
		return t.root.Remove(change.Path)
	}
	mode := cmp.Or(goal.mode, was.mode, 0o644)
	if was.exists && was.mode == mode && bytes.Equal(was.content, content) {
		return nil
	}
	return t.write(change.Path, content, mode, was)
}

// before stores the current content. If an interrupted call restored the file already, before returns the content
// that it stored.
func before(ctx context.Context, st *tally.Store, goal fileGoal, was found) (events.DocRef, error) {
	restored := was.hash() == hashOfRef(st, goal.blob)
	switch {
	case restored && goal.expect == absentHash:
		return events.Absent, nil
	case restored && goal.expect != "":
		if _, err := st.Blob(ctx, goal.expect); err == nil {
			return refOf(st, goal.expect), nil
		}
	}
	if !was.exists {
		return events.Absent, nil
	}
	return putFile(ctx, st, was.content)
}

// refOf returns the reference of content by its hash.
func refOf(st *tally.Store, hash string) events.DocRef {
	return events.RefOf(events.Document(st.Namespace(), events.KindBlob, hash), 0)
}

// putFile stores the content of a file and returns its reference.
func putFile(ctx context.Context, st *tally.Store, content []byte) (events.DocRef, error) {
	if _, err := st.PutBlob(ctx, content); err != nil {
		return "", err
	}
	return refOf(st, hashOf(content)), nil
}

// blobOf reads the content of a reference.
func blobOf(ctx context.Context, st *tally.Store, ref events.DocRef) ([]byte, error) {
	doc, at, err := ref.Parse(st.Namespace())
	if err != nil {
		return nil, err
	}
	if doc.Kind == events.KindBlob {
		return st.Blob(ctx, doc.ID)
	}
	d, err := st.Loader().Document(ctx, doc, at)
	if err != nil {
		return nil, err
	}
	return d.Data, nil
}

// recorded returns the changes in the form of the event.
func recorded(changes []FileChange) []events.RestoredFile {
	var list []events.RestoredFile
	for _, c := range changes {
		f := events.RestoredFile{Path: c.Path, Action: c.Action, Before: c.Before, Mode: int64(c.Mode)}
		if c.Err != nil {
			f.Error = strings.ToValidUTF8(c.Err.Error(), "\ufffd")
		}
		list = append(list, f)
	}
	return list
}

// SnapshotFiles reads the files that a run is about to write, so that they can be restored. A path outside of dir is
// an error. A missing file that the run would delete is omitted.
func SnapshotFiles(dir string, writes []FileWrite) ([]FileSnapshot, error) {
	t := WorkTree{Dir: dir}.open()
	defer t.close()
	if t.err != nil {
		return nil, t.err
	}
	snaps := []FileSnapshot{}
	for _, w := range writes {
		name, err := t.name(w.Path)
		if err != nil {
			return nil, err
		}
		was, err := t.read(name)
		if err != nil {
			return nil, err
		}
		if !was.exists && w.Delete {
			continue
		}
		snaps = append(snaps, FileSnapshot{Path: name, Content: was.content, DidNotExist: !was.exists, Mode: was.mode})
	}
	return snaps, nil
}
