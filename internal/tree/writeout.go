package tree

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash"
	"io"
	"io/fs"
	"iter"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/layouts"
)

// wantedFile is the intended state of a file.
type wantedFile struct {
	layouts.File
	entry events.Subject
	at    events.Offset
	sum   string
	size  int64
	data  []byte    // nil: it is large, and rendered during the write
	grew  bool      // the current content of the file is its beginning
	tail  []byte    // data behind the current content; nil: in data, or rendered
	hash  hash.Hash // has hashed the whole content
}

// Maximum sizes of a file that is rendered once, into memory, and of an edit that is kept in memory.
const (
	heldRendered = 1 << 20
	heldEdit     = 8 << 20
)

// writeOut updates the files of entries to the log as of an offset, and appends the additions of grown entries. Files that
// cannot be written are stuck and retried. The caller holds mu.
func (t *Tree) writeOut(ctx context.Context, list []events.Subject, grown map[events.Subject][]wantedFile, at events.Offset) error {
	ctx = context.WithoutCancel(ctx) // a partial update would be repeated
	if err := t.ascertain(ctx); err != nil {
		return err
	}
	failed := make(map[events.Subject]error)
	for next := list; len(next) > 0; {
		maps.Copy(failed, t.locate(ctx, next, at))
		next = nil
		for sub := range t.moved {
			if !slices.Contains(list, sub) {
				next = append(next, sub)
				delete(grown, sub)
			}
		}
		list = append(list, next...)
	}
	clear(t.moved)
	var wants []wantedFile
	var gone []string
	for sub := range grown {
		list = append(list, sub)
	}
	for _, sub := range t.sorted(list) {
		if more, is := grown[sub]; is {
			wants = append(wants, more...)
			continue
		}
		if failed[sub] != nil {
			continue // it is stuck: whether its files belong elsewhere is not known
		}
		delete(t.stuck, sub)
		files, err := t.render(ctx, sub, at)
		if err != nil {
			t.isStuck(sub, t.entries[sub].path, err)
			continue
		}
		for _, p := range t.filesOf(sub) {
			if !slices.ContainsFunc(files, func(w wantedFile) bool { return w.Path == p }) {
				gone = append(gone, p)
			}
		}
		for _, w := range files {
			if f := t.files[w.Path]; f == nil || f.sum != w.sum || layouts.ModeOf(f.mode) != layouts.ModeOf(w.Mode) || f.entry != sub || t.redo[sub] {
				wants = append(wants, w)
			} else if f.at != at {
				f.at = at
				t.changed.file(w.Path)
			}
		}
		delete(t.redo, sub)
	}
	if err := t.change(ctx, wants, gone); err != nil {
		for _, sub := range list {
			t.writeAgain(sub)
		}
		return err
	}
	for _, sub := range list {
		if t.stuck[sub] == nil {
			t.entries[sub].at = at
			t.changed.entry(sub)
		}
	}
	return nil
}

// change writes and removes files. It saves the intents first, so a crash at any point leaves only known content.
func (t *Tree) change(ctx context.Context, wants []wantedFile, gone []string) error {
	if len(wants)+len(gone) == 0 {
		return nil
	}
	for _, w := range wants {
		if tried, ok := t.intents[w.Path]; ok && tried.sum != w.sum {
			t.tried[w.Path] = append(t.tried[w.Path], tried.sum)
		}
		t.intents[w.Path] = intent{w.entry, w.at, w.sum}
		t.changed.intent(w.Path)
	}
	reached("before temp")
	if err := t.save(ctx); err != nil {
		return err
	}
	folders := make(map[string]bool)
	for _, p := range gone { // first: another entry may get the name
		sub := t.files[p].entry
		t.attempt(sub, p, t.remove(ctx, p))
		folders[folder(p)] = true
	}
	for _, w := range wants {
		appended, err := t.put(ctx, w)
		if t.attempt(w.entry, w.Path, err) {
			delete(t.intents, w.Path)
			delete(t.tried, w.Path)
			t.changed.intent(w.Path)
			t.keepHash(w)
		}
		if !appended {
			folders[folder(w.Path)] = true
		}
	}
	t.tidy(ctx, gone)
	if s, ok := t.c.Storage.(layouts.Syncer); ok && len(folders) > 0 {
		if err := s.Sync(ctx, slices.Collect(maps.Keys(folders))...); err != nil {
			return err
		}
	}
	reached("before manifest")
	return nil
}

func folder(p string) string {
	if d := path.Dir(p); d != "." {
		return d
	}
	return ""
}

// attempt notes the result of a change of a file, and reports whether it succeeded.
func (t *Tree) attempt(sub events.Subject, p string, err error) bool {
	if err != nil {
		t.isStuck(sub, p, err)
	} else {
		delete(t.told, p)
	}
	return err == nil
}

// isStuck schedules a retry for an entry. The caller holds mu.
func (t *Tree) isStuck(sub events.Subject, p string, err error) {
	if reason := err.Error(); t.told[p] != reason { // avoids a message for each retry
		t.told[p] = reason
		t.c.Logger.Warn("a file of the tree cannot be written, will retry", "tree", t.c.Name, "path", p, "err", err)
	}
	t.stuck[sub] = &Error{t.c.Name, p, err}
	t.writeAgain(sub)
	t.unsure = true
	if t.again.IsZero() {
		t.wait = min(max(2*t.wait, minRetry), maxRetry)
		t.again = t.c.Now().Add(t.wait)
	}
	t.stir()
}

// writeAgain schedules a rewrite of an entry, also across a restart. The caller holds mu.
func (t *Tree) writeAgain(sub events.Subject) {
	t.redo[sub] = true
	if u := t.entries[sub]; u != nil {
		u.at = 0
		t.changed.entry(sub)
	}
}

// ascertain determines the outcome of failed or unanswered attempts: files may have been displaced. The caller holds
// mu.
func (t *Tree) ascertain(ctx context.Context) error {
	if !t.unsure {
		return nil
	}
	err := t.leftovers(ctx)
	t.unsure = err != nil
	return err
}

// Bounds of the delay between two attempts of a failing write.
const (
	minRetry = 100 * time.Millisecond
	maxRetry = 10 * time.Second
)

// locate determines the paths of entries. Other entries may have to give way, or get back their wanted path; these are
// added to moved. An entry whose location cannot be determined keeps its path; it is among the failed ones, and stuck
// unless ctx is done. The caller holds mu.
func (t *Tree) locate(ctx context.Context, list []events.Subject, at events.Offset) (failed map[events.Subject]error) {
	src := t.as(at)
	contested := t.names.contested > 0
	for _, sub := range list {
		u := t.entries[sub]
		p, err := t.locationOf(ctx, src, sub)
		if err != nil && !isGone(err) {
			if failed == nil {
				failed = make(map[events.Subject]error)
			}
			if failed[sub] = err; ctx.Err() == nil {
				t.isStuck(sub, u.path, err)
			}
			continue
		}
		if err != nil {
			p = layouts.Location{Apart: reasonOut(err)}
		}
		t.names.add(u, -1)
		if u.want != p.Path || u.apart != p.Apart || u.folder != p.Folder || !slices.Equal(u.within, p.Files) {
			u.want, u.apart, u.folder, u.within, u.path = p.Path, p.Apart, p.Folder, p.Files, p.Path
			t.changed.entry(sub)
		}
		t.names.add(u, 1)
	}
	if contested || t.names.contested > 0 {
		t.choose()
	}
	return failed
}

// reasonOut returns why a layout has no files for a session, or "" if the session does not exist.
func reasonOut(err error) string {
	if e, ok := errors.AsType[*layouts.LeftOutError](err); ok {
		return e.Reason
	}
	return ""
}

// choose assigns a path to each entry, considering all others. The caller holds mu.
func (t *Tree) choose() {
	var all []*entry
	subs, before := make(map[*entry]events.Subject), make(map[*entry]string)
	for sub, u := range t.entries {
		if u.want != "" {
			all, subs[u], before[u] = append(all, u), sub, u.path
		}
	}
	assignPaths(all)
	for _, u := range all {
		if u.path != before[u] {
			t.moved[subs[u]] = true
			t.changed.entry(subs[u])
		}
	}
}

func (t *Tree) locationOf(ctx context.Context, src layouts.Source, sub events.Subject) (layouts.Location, error) {
	if sub.Kind == KindConflict {
		return t.conflictLocation(ctx, src, sub)
	}
	return t.c.Layout.Location(ctx, src, t.c.Root, sub)
}

// render returns the files of an entry as of an offset. The caller holds mu.
func (t *Tree) render(ctx context.Context, sub events.Subject, at events.Offset) ([]wantedFile, error) {
	u := t.entries[sub]
	if u == nil || u.path == "" {
		return nil, nil
	}
	return t.renderAt(ctx, sub, at, u.path)
}

func (t *Tree) renderAt(ctx context.Context, sub events.Subject, at events.Offset, name string) ([]wantedFile, error) {
	var list []wantedFile
	for f, err := range t.entryFiles(ctx, sub, at, name) {
		if isGone(err) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		w := wantedFile{File: f, entry: sub, at: at}
		if err := w.measure(t.files[f.Path], t.heldRendered); err != nil {
			return nil, err
		}
		list = append(list, w)
	}
	return list, nil
}

func (t *Tree) entryFiles(ctx context.Context, sub events.Subject, at events.Offset, name string) iter.Seq2[layouts.File, error] {
	if sub.Kind == KindConflict {
		return conflictFile(ctx, t.as(at), sub, name)
	}
	return t.c.Layout.EntryFiles(ctx, t.as(at), t.c.Root, sub, name)
}

// measure renders a file to compute its hash, and whether it only grew.
func (w *wantedFile) measure(have *fileRecord, held int64) error {
	m := measurer{hash: sha256.New(), held: held}
	if have != nil && isLog(w.Path) {
		m.mark, m.sum = have.size, have.sum
	}
	if err := w.Write(&m); err != nil {
		return err
	}
	w.hash = m.hash
	w.sum, w.size, w.grew = hex.EncodeToString(m.hash.Sum(nil)), m.size, m.grew && m.size > m.mark
	if m.size <= m.held {
		w.data = m.data
		if w.data == nil {
			w.data = []byte{}
		}
	}
	return nil
}

// measurer hashes the written data, and keeps them up to a size.
type measurer struct {
	hash hash.Hash
	size int64
	held int64 // data holds the content up to this size
	data []byte
	mark int64  // size at which the hash is compared with sum
	sum  string // "": no comparison
	grew bool
}

func (m *measurer) Write(p []byte) (int, error) {
	if rest := m.mark - m.size; m.sum != "" && rest >= 0 && rest <= int64(len(p)) {
		m.hash.Write(p[:rest])
		m.grew = hex.EncodeToString(m.hash.Sum(nil)) == m.sum
		m.hash.Write(p[rest:])
		m.sum = ""
	} else {
		m.hash.Write(p)
	}
	m.size += int64(len(p))
	if m.size <= m.held {
		m.data = append(m.data, p...)
	} else {
		m.data = nil
	}
	return len(p), nil
}

func (w *wantedFile) content(out io.Writer) error {
	if w.data != nil {
		_, err := out.Write(w.data)
		return err
	}
	return w.Write(out)
}

// errInTheWay reports that the path of a file has something that is not a file.
var errInTheWay = errors.New("the path is neither free nor a regular file: it is neither followed nor replaced")

// put writes a file. A displaced unknown file is kept. It reports whether the write only appended to a file that was
// durable before.
func (t *Tree) put(ctx context.Context, w wantedFile) (appended bool, err error) {
	if isGits(w.Path) {
		return false, errGits
	}
	have, other := t.files[w.Path], ""
	if have == nil {
		if p := t.sameFile(ctx, w.Path); p != w.Path {
			have, other = t.files[p], p // the same file, under its former name
		}
	}
	e, err := t.c.Storage.Stat(ctx, w.Path)
	there := err == nil
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	if there && (e.Dir || e.Size < 0) {
		return false, errInTheWay
	}
	if have != nil && have.sum == w.sum && other == "" && layouts.ModeOf(have.mode) == layouts.ModeOf(w.Mode) && !t.isDropped(w.Path) {
		// The content is unchanged. If a user saved or removed the file since the last examination, that is an edit to
		// be imported.
		have.at = w.at
		t.changed.file(w.Path)
		if t.c.Way != Out && (!there || e.Version == "" || e.Version != have.version) {
			t.note(w.Path, t.c.Now())
		}
		return false, nil
	}
	if there && w.grew && have != nil && e.Version == have.version && e.Version != "" && e.Size == have.size && layouts.ModeOf(have.mode) == layouts.ModeOf(w.Mode) {
		if done, err := t.grow(ctx, w, have); done || err != nil {
			return done && w.tail != nil, err
		}
	}
	if there && have == nil && e.Size == w.size && layouts.ModeOf(e.Mode) == layouts.ModeOf(w.Mode) {
		if sum, err := t.sumOf(ctx, w.Path); err == nil && sum == w.sum { // unchanged
			t.set(w.Path, &fileRecord{entry: w.entry, at: w.at, sum: sum, size: w.size, mode: e.Mode})
			return false, nil
		}
	}
	mode := w.Mode
	if there && layouts.ModeOf(e.Mode) == layouts.ModeOf(mode) {
		mode = e.Mode // as the user's umask or group set it
	}
	reached("before swap")
	old, err := t.swap(ctx, w.Path, mode, w.content)
	if err != nil {
		return false, err
	}
	reached("after exchange")
	f := &fileRecord{entry: w.entry, at: w.at, sum: w.sum, size: w.size, mode: mode}
	f.version = t.versionOf(ctx, w)
	if other != "" {
		t.set(other, nil)
	}
	t.set(w.Path, f)
	if old != "" {
		t.came(ctx, old, w.Path, w.entry, have, w)
	}
	return false, nil
}

// versionOf returns the version of a file that was just written. It returns "" if the file may have been replaced
// meanwhile by a text of the same size. It does not read large files again.
func (t *Tree) versionOf(ctx context.Context, w wantedFile) string {
	e, err := t.c.Storage.Stat(ctx, w.Path)
	if err != nil || e.Size != w.size {
		return ""
	}
	if w.size <= large {
		if sum, err := t.sumOf(ctx, w.Path); err != nil || sum != w.sum {
			return ""
		}
	}
	return e.Version
}

// errGits reports that a file would be in git's own folder, where it could change git's behaviour.
var errGits = errors.New("the path belongs to git: tally does not write there")

func isGits(p string) bool {
	for name := range strings.SplitSeq(p, "/") {
		if strings.EqualFold(name, ".git") {
			return true
		}
	}
	return false
}

// isDropped reports whether a user decided to drop the edit of a file.
func (t *Tree) isDropped(p string) bool { return t.edits[p] != nil && t.edits[p].dropped }

// grow appends missing data to a log file. It returns false if another writer changed the file as well; the file is
// then replaced.
func (t *Tree) grow(ctx context.Context, w wantedFile, have *fileRecord) (done bool, err error) {
	tail := w.tail
	switch {
	case tail != nil:
	case w.data != nil:
		tail = w.data[have.size:]
	default:
		s := &skipper{skip: have.size}
		if err := w.Write(s); err != nil {
			return false, err
		}
		tail = s.rest
	}
	reached("mid append")
	e, err := t.c.Storage.Stat(ctx, w.Path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && e.Version != have.version { // it changed while the tail was rendered
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if err := t.c.Storage.Append(ctx, w.Path, tail); err != nil {
		return false, err
	}
	e, err = t.c.Storage.Stat(ctx, w.Path)
	if err != nil || e.Size != w.size {
		return false, err
	}
	t.set(w.Path, &fileRecord{entry: w.entry, at: w.at, sum: w.sum, size: w.size, mode: have.mode, version: e.Version})
	return true, nil
}

// skipper keeps the data behind the first skip bytes. It has only a Write method: io functions would call an embedded
// buffer's other methods instead.
type skipper struct {
	skip int64
	rest []byte
}

func (s *skipper) Write(p []byte) (int, error) {
	n := len(p)
	if s.skip > 0 {
		k := min(s.skip, int64(n))
		s.skip -= k
		p = p[k:]
	}
	s.rest = append(s.rest, p...)
	return n, nil
}

// swap puts content in a file's place, and returns the new path of the displaced file. If the storage cannot do both
// atomically, swap first copies the displaced file.
func (t *Tree) swap(ctx context.Context, name string, mode fs.FileMode, content func(io.Writer) error) (old string, err error) {
	if s, ok := t.c.Storage.(layouts.Swapper); ok {
		return s.Swap(ctx, name, mode, content)
	}
	if old, err = t.copied(ctx, name); err != nil {
		return "", err
	}
	return old, t.c.Storage.Write(ctx, name, mode, content)
}

// copied copies a file to the path of a displaced file. It returns "" if the file does not exist.
func (t *Tree) copied(ctx context.Context, name string) (string, error) {
	r, err := t.c.Storage.Read(ctx, name)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	defer r.Close()
	old := layouts.TemporaryName(name)
	return old, t.c.Storage.Write(ctx, old, 0o600, func(w io.Writer) error {
		_, err := io.Copy(w, r)
		return err
	})
}

// remove removes a file that the log no longer has.
func (t *Tree) remove(ctx context.Context, p string) error {
	have := t.files[p]
	e, err := t.c.Storage.Stat(ctx, p)
	if errors.Is(err, fs.ErrNotExist) || err == nil && (e.Dir || e.Size < 0 || t.sameFile(ctx, p) != p) { // not the tree's file, or another file of the tree
		t.set(p, nil)
		return nil
	}
	if err != nil {
		return err
	}
	reached("before removal")
	var old string
	if s, ok := t.c.Storage.(layouts.Swapper); ok {
		old, err = s.Displace(ctx, p)
	} else if old, err = t.copied(ctx, p); err == nil {
		err = t.c.Storage.Delete(ctx, p)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	t.set(p, nil)
	if old != "" {
		t.came(ctx, old, p, have.entry, have, wantedFile{})
	}
	return nil
}

// tidy removes folders that became empty by the removal of files.
func (t *Tree) tidy(ctx context.Context, gone []string) {
	if _, flat := t.c.Storage.(layouts.Walker); flat {
		return // it has no folders, and listing would read everything
	}
	for _, p := range gone {
		for d := folder(p); d != ""; d = folder(d) {
			if list, err := t.c.Storage.List(ctx, d); err != nil || len(list) > 0 || t.c.Storage.Delete(ctx, d) != nil {
				break
			}
		}
	}
}
