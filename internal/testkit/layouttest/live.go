package layouttest

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"maps"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/internal/testkit/storagetest"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
)

// Shown has the files of one entry in a folder that follows a store.
type Shown struct {
	Entry events.Subject
	At    string
	Files map[string]string
	Modes map[string]fs.FileMode
}

// Entries returns all entries of a folder that follows a store. It finds them through the subjects of the store, as
// the live tree does.
func Entries(t testing.TB, src layouts.Source, l layouts.Layout, root layouts.Root) map[events.Subject]*Shown {
	t.Helper()
	ctx := t.Context()
	type placed struct {
		layouts.Location
		entry events.Subject
		first events.Offset
	}
	var list []placed
	seen := make(map[events.Subject]bool)
	for _, sub := range subjects(t, src) {
		entry, ok, err := l.Entry(ctx, src, root, sub)
		if err != nil {
			t.Fatal(err)
		}
		if !ok || seen[entry] {
			continue
		}
		seen[entry] = true
		p, err := l.Location(ctx, src, root, entry)
		if errors.Is(err, projector.ErrNotFound) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, placed{p, entry, first(t, src, entry)})
	}
	slices.SortStableFunc(list, func(a, b placed) int {
		return cmp.Or(cmp.Compare(min(1, len(a.Apart)), min(1, len(b.Apart))), cmp.Compare(a.first, b.first))
	})
	var names layouts.Names
	shown := make(map[events.Subject]*Shown)
	for _, p := range list {
		shown[p.entry] = EntryFiles(t, src, l, root, p.entry, names.Assign(p.Location))
	}
	return shown
}

// EntryFiles returns the files of an entry at a location.
func EntryFiles(t testing.TB, src layouts.Source, l layouts.Layout, root layouts.Root, entry events.Subject, at string) *Shown {
	t.Helper()
	u := &Shown{entry, at, make(map[string]string), make(map[string]fs.FileMode)}
	last := ""
	for f, err := range l.EntryFiles(t.Context(), src, root, entry, at) {
		var b bytes.Buffer
		if err == nil {
			err = f.Write(&b)
		}
		if err != nil {
			t.Fatalf("%s: %s: %v", entry, f.Path, err)
		}
		if f.Path <= last {
			t.Errorf("%s: the file %q comes after %q, want sorted files", entry, f.Path, last)
		}
		last = f.Path
		u.Files[f.Path], u.Modes[f.Path] = b.String(), f.Mode
	}
	return u
}

// subjects returns the subjects of the kinds that layouts have files for.
func subjects(t testing.TB, src layouts.Source) []events.Subject {
	t.Helper()
	var list []events.Subject
	for _, kind := range []string{events.KindSession, events.KindFile, events.KindAgent, events.KindBlob, "doc", "workflow", "overlay", "recipe", "secret"} {
		for info, err := range src.Subjects(t.Context(), kind) {
			if err != nil {
				t.Fatal(err)
			}
			list = append(list, info.Subject)
		}
	}
	return list
}

func first(t testing.TB, src layouts.Source, sub events.Subject) events.Offset {
	t.Helper()
	for rec, err := range src.Loader().Source.Read(t.Context(), events.Range{Subject: sub, Limit: 1}) {
		if err != nil {
			t.Fatal(err)
		}
		return rec.Offset
	}
	return 0
}

// AllFiles merges the files of all entries. No two entries have the same file.
func AllFiles(t testing.TB, shown map[events.Subject]*Shown) (files map[string]string, modes map[string]fs.FileMode) {
	t.Helper()
	files, modes = make(map[string]string), make(map[string]fs.FileMode)
	for entry, u := range shown {
		for name, content := range u.Files {
			if _, ok := files[name]; ok {
				t.Errorf("%s and another entry both have the file %s", entry, name)
			}
			files[name], modes[name] = content, u.Modes[name]
		}
	}
	return files, modes
}

// CheckEntries compares the files of all entries with an export of the whole store, and finds each entry by its
// files.
func CheckEntries(t testing.TB, src layouts.Source, l layouts.Layout, root layouts.Root) map[events.Subject]*Shown {
	t.Helper()
	shown := Entries(t, src, l, root)
	have, modes := AllFiles(t, shown)
	f := files{content: make(map[string]string), modes: make(map[string]fs.FileMode)}
	if _, err := layouts.Export(t.Context(), src, l, f, layouts.ExportOptions{All: true}); err != nil {
		t.Fatal(err)
	}
	MustEqual(t, f.content, have)
	for name, mode := range f.modes {
		if modes[name] != mode {
			t.Errorf("%s has mode %v, want %v", name, modes[name], mode)
		}
	}
	for entry, u := range shown {
		for name := range u.Files {
			if sub, ok, err := l.EntryAt(t.Context(), src, root, name); err != nil || !ok || sub != entry {
				t.Errorf("file %s: want the entry %s, got %s: %v, error %v", name, entry, sub, ok, err)
			}
		}
	}
	return shown
}

// Seeds returns the number of stores to check a law with: n, or many in long campaigns.
func Seeds(n int) uint64 {
	if testkit.Soak() {
		n *= 100
	}
	return uint64(testkit.Times(n))
}

// began is the time at which the files of a Tree were written.
var began = time.Date(2026, 8, 22, 10, 0, 0, 0, time.UTC)

// InMemory returns a storage that holds files.
func InMemory(t testing.TB, files map[string]string, mode fs.FileMode) *storagetest.Mem {
	t.Helper()
	st := storagetest.NewMem(storagetest.MemOptions{Now: func() time.Time { return began }})
	for name, content := range files {
		if err := st.Write(t.Context(), name, mode, storagetest.Bytes(content)); err != nil {
			t.Fatal(err)
		}
	}
	return st
}

// CheckImportFrom imports files from a folder and from memory into two stores and expects the same records. It
// returns the root.
func CheckImportFrom(t testing.TB, l layouts.Layout, dir string, a, b layouts.Target) layouts.Root {
	t.Helper()
	there := Shown{Files: ReadTree(t, dir), Modes: make(map[string]fs.FileMode)}
	for name := range there.Files {
		full := filepath.Join(dir, filepath.FromSlash(name))
		info, err := os.Stat(full)
		if err != nil {
			t.Fatal(err)
		}
		there.Modes[name] = info.Mode()
		if err := os.Chtimes(full, began, began); err != nil {
			t.Fatal(err)
		}
	}
	r, err := l.Import(t.Context(), a, dir, layouts.ImportOptions{})
	if err != nil {
		t.Fatal(err)
	}
	resolved, err := filepath.EvalSymlinks(dir)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256([]byte(resolved))
	root := layouts.Root{Name: r.Root, Marker: hex.EncodeToString(sum[:])[:16]}
	other, err := l.ImportFrom(t.Context(), b, there.storage(t), root, layouts.ImportOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if r.Dir = ""; !slices.Equal(r.Problems, other.Problems) || r.Events != other.Events || r.Files != other.Files || r.Bytes != other.Bytes {
		t.Errorf("the reports differ: from a folder %+v, from memory %+v", r, other)
	}
	MustBeAlike(t, a, b)
	return root
}

// MustBeAlike compares the records of two stores, subject by subject.
func MustBeAlike(t testing.TB, a, b layouts.Source) {
	t.Helper()
	if x, y := subjects(t, a), subjects(t, b); !slices.Equal(x, y) {
		t.Fatalf("the subjects differ: %v and %v", x, y)
	}
	for _, sub := range subjects(t, a) {
		if sub.Kind == "secret" {
			continue // sealing the same content twice differs
		}
		x, y := said(t, a, sub), said(t, b, sub)
		for i := range max(len(x), len(y)) {
			if i >= len(x) || i >= len(y) || x[i] != y[i] {
				t.Errorf("the records of %s differ: %.1500q\nand %.1500q", sub, x[min(i, len(x)):], y[min(i, len(y)):])
				break
			}
		}
	}
}

// said returns the content of a subject's records, without what depends on their position in the log.
func said(t testing.TB, src layouts.Source, sub events.Subject) []string {
	t.Helper()
	var list []string
	for rec, err := range src.Loader().Source.Read(t.Context(), events.Range{Subject: sub}) {
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, strings.Join([]string{rec.Type, rec.Source, rec.ContentType, string(rec.Data)}, " "))
	}
	return list
}

// CheckAlone imports each entry of a store from a storage that has only the entry's files: into the store, which
// already has it, and into another store, which then has only this entry.
func CheckAlone(t testing.TB, l layouts.Layout, root layouts.Root, st layouts.Target, open func() layouts.Target) {
	t.Helper()
	for entry, u := range Entries(t, st, l, root) {
		o := layouts.ImportOptions{Merge: true, Part: true}
		listed := &lister{Target: st}
		if r, err := l.ImportFrom(t.Context(), listed, u.storage(t), root, o); err != nil || r.Events != 0 {
			t.Errorf("a second import of %s: %+v, error %v", entry, r, err)
		}
		if listed.n > 0 && !layouts.IsShortened(strings.TrimSuffix(path.Base(u.At), ".json")) && !strings.HasPrefix(entry.ID, "agent/") {
			t.Errorf("a second import of %s listed all subjects %d times, want none", entry, listed.n)
		}
		other := open()
		if _, err := l.ImportFrom(t.Context(), other, u.storage(t), root, o); err != nil {
			t.Errorf("import of %s alone: %v", entry, err)
		}
		shown := Entries(t, other, l, root)
		for sub, s := range shown {
			if sub != entry {
				t.Errorf("import of %s alone added %s: %q", entry, sub, slices.Sorted(maps.Keys(s.Files)))
			}
		}
		if s := shown[entry]; s == nil || !maps.Equal(s.below(), u.below()) {
			t.Errorf("%s differs in another store: %+v, want %+v", entry, s, u)
		}
	}
}

// below returns the files by their paths inside the entry.
func (u *Shown) below() map[string]string {
	files := make(map[string]string)
	for name, content := range u.Files {
		files[strings.TrimPrefix(name, u.At+"/")] = content
	}
	return files
}

// CheckImported imports a folder and compares a live tree of the store with it. The sessions have the same files as
// in the folder's root, in both directions, and another import of the folder changes nothing. Files that belong to no
// session stay out of the tree.
func CheckImported(t testing.TB, l layouts.Layout, dir string, st layouts.Target, open func() layouts.Target, r *rand.Rand) {
	t.Helper()
	root := CheckImportFrom(t, l, dir, st, open())
	live := layouts.Root{Name: layouts.LiveRoot, Marker: "m"}
	of := func(root layouts.Root) map[string]string {
		shown := Entries(t, st, l, root)
		maps.DeleteFunc(shown, func(entry events.Subject, _ *Shown) bool { return !entry.IsSession() })
		files, _ := AllFiles(t, shown)
		return files
	}
	want := of(root)
	if len(want) == 0 {
		t.Fatal("the folder has no sessions")
	}
	MustEqual(t, want, of(live))
	CheckAlone(t, l, live, st, open)
	again, err := l.Import(t.Context(), st, dir, layouts.ImportOptions{})
	if err != nil || again.Events != 0 || len(again.Refused) > 0 {
		t.Errorf("a second import: %+v, error %v", again, err)
	}
	CheckEdits(t, l, live, st, r, 15)
	MustEqual(t, of(root), of(live))
	CheckRemovals(t, l, live, st, func(entry events.Subject) bool { return !entry.IsSession() })
	MustEqual(t, of(root), of(live))
}

// lister counts lists of subjects.
type lister struct {
	layouts.Target
	n int
}

func (l *lister) Subjects(ctx context.Context, kind string) iter.Seq2[log.SubjectInfo, error] {
	l.n++
	return l.Target.Subjects(ctx, kind)
}

func (u *Shown) storage(t testing.TB) *storagetest.Mem {
	t.Helper()
	st := storagetest.NewMem(storagetest.MemOptions{Now: func() time.Time { return began }})
	for name, content := range u.Files {
		if err := st.Write(t.Context(), name, u.Modes[name], storagetest.Bytes(content)); err != nil {
			t.Fatal(err)
		}
	}
	return st
}

// CheckEdits edits files of a store's entries at random and imports each edited entry. Afterwards the store shows the
// text, or a problem says why not, and no other entry has changed.
func CheckEdits(t testing.TB, l layouts.Layout, root layouts.Root, st layouts.Target, r *rand.Rand, edits int) {
	t.Helper()
	refused := 0
	for range edits {
		before := Entries(t, st, l, root)
		entries := slices.SortedFunc(maps.Keys(before), func(a, b events.Subject) int { return strings.Compare(a.String(), b.String()) })
		u := before[entries[r.IntN(len(entries))]]
		if len(u.Files) == 0 {
			continue
		}
		names := slices.Sorted(maps.Keys(u.Files))
		name := names[r.IntN(len(names))]
		text := edited(u.Files[name], r)
		u.Files[name] = text
		rep, err := broughtIn(t, l, st, u, root)
		if err != nil {
			t.Fatalf("import of %s, edited to %q: %v", name, text, err)
		}
		after := Entries(t, st, l, root)
		files, _ := AllFiles(t, after)
		switch {
		case files[name] == text:
		case len(rep.Problems) == 0:
			t.Errorf("%s was edited to %q, but is %q: %+v", name, text, files[name], rep)
		default:
			refused++
		}
		for sub, other := range before {
			if now := after[sub]; sub != u.Entry && (now == nil || !maps.Equal(now.Files, other.Files)) {
				t.Errorf("an edit of %s changed %s", name, sub)
			}
		}
	}
	if refused == edits && edits > 9 {
		t.Errorf("none of %d edits was imported", edits)
	}
}

// broughtIn imports the files of an entry, deciding by the store as of before. If something was appended meanwhile,
// it decides again.
func broughtIn(t testing.TB, l layouts.Layout, st layouts.Target, u *Shown, root layouts.Root) (r layouts.Report, err error) {
	for range 4 {
		r, err = l.ImportFrom(t.Context(), asOf(t, st), u.storage(t), root, layouts.ImportOptions{Merge: true, Part: true})
		if !errors.Is(err, errMoved) {
			break
		}
	}
	return r, err
}

// errMoved reports that the store changed after the decision.
var errMoved = errors.New("the log has moved on")

// past is a store as of one offset. Later appends do not show.
type past struct {
	layouts.Target
	loader *projector.Loader
}

func asOf(t testing.TB, st layouts.Target) *past {
	t.Helper()
	l := st.Loader()
	head, err := l.Source.(interface {
		Head(context.Context) (events.Offset, error)
	}).Head(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return asOfOffset(st, head)
}

func (p *past) Loader() *projector.Loader { return p.loader }

func (p *past) Append(ctx context.Context, sub events.Subject, expect log.Expect, evs ...events.Event) (log.Ack, error) {
	ack, err := p.Target.Append(ctx, sub, expect, evs...)
	return ack, moved(err)
}

func (p *past) AppendSeries(ctx context.Context, sub events.Subject, expect log.Expect, evs ...events.Event) (log.Ack, int, error) {
	ack, n, err := p.Target.AppendSeries(ctx, sub, expect, evs...)
	return ack, n, moved(err)
}

func moved(err error) error {
	if errors.Is(err, log.ErrConflict) {
		return fmt.Errorf("%w: %v", errMoved, err) //nolint:errorlint // not to be retried
	}
	return err
}

// edited returns a random edit of a text.
func edited(text string, r *rand.Rand) string {
	at := 0
	if len(text) > 0 {
		at = r.IntN(len(text))
	}
	switch r.IntN(5) {
	case 0:
		return text[:at]
	case 1:
		return text[:at] + " x" + text[at:]
	case 2:
		return text + "\n"
	case 3:
		for _, digit := range "0123456789" { // most digits stay
			if i := strings.LastIndexByte(text, byte(digit)); i >= 0 {
				return text[:i] + string("1234567890"[digit-'0']) + text[i+1:]
			}
		}
	}
	return text + text[at:]
}

// Removed appends the events for an entry whose files are gone, and returns the number of appends.
func Removed(t testing.TB, l layouts.Layout, st layouts.Target, entry events.Subject) int {
	t.Helper()
	parts, err := l.Removal(t.Context(), st, entry)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range parts {
		if _, err := st.Append(t.Context(), p.Subject, p.Expect, p.Events...); err != nil {
			t.Fatal(err)
		}
	}
	return len(parts)
}

// CheckRemovals removes the files of each entry of a store and puts them back. In between the entry has no files,
// afterwards the same as before. keeps reports the entries that stay without their files.
func CheckRemovals(t testing.TB, l layouts.Layout, root layouts.Root, st layouts.Target, keeps func(events.Subject) bool) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	before := Entries(t, st, l, root)
	for entry, u := range before {
		n := Removed(t, l, st, entry)
		if keeps(entry) {
			if n != 0 {
				t.Errorf("removal of %s: got %d appends", entry, n)
			}
			continue
		}
		if _, err := l.Location(ctx, st, root, entry); n == 0 || !errors.Is(err, projector.ErrNotFound) {
			t.Errorf("%s was removed by %d appends, but exists: %v", entry, n, err)
		}
		if n := Removed(t, l, st, entry); n != 0 {
			t.Errorf("a second removal of %s made %d appends", entry, n)
		}
		r, err := l.ImportFrom(ctx, st, u.storage(t), root, layouts.ImportOptions{Merge: true, Part: true})
		if err != nil {
			t.Errorf("put %s back: %v", entry, err)
		}
		after := Entries(t, st, l, root)
		if now := after[entry]; now == nil || !maps.Equal(now.Files, u.Files) {
			t.Errorf("%s differs after it was put back: %+v, %+v, want %+v", entry, r, now, u)
		}
	}
}

// Alone imports the files of a live tree, as left by a kill, into an empty store and compares the threads of each
// session.
func Alone(t testing.TB, src layouts.Source, l layouts.Layout, dir string) Store {
	t.Helper()
	other := OpenStore(t)
	r, err := l.ImportFrom(t.Context(), other, InMemory(t, ReadLive(t, dir), 0o600), layouts.Root{Name: layouts.LiveRoot, Marker: "m"}, layouts.ImportOptions{})
	if err != nil {
		t.Fatal(err)
	}
	MustBeClean(t, r)
	count := 0
	for info, err := range src.Subjects(t.Context(), events.KindSession) {
		if err != nil {
			t.Fatal(err)
		}
		want, err := src.Loader().Session(t.Context(), info.Subject, 0)
		if err != nil {
			t.Fatal(err)
		}
		have, err := other.Loader().Session(t.Context(), info.Subject, 0)
		if err != nil {
			t.Errorf("%s: %v", info.Subject, err)
			continue
		}
		count++
		if have.Ledger.Kind != want.Ledger.Kind || have.Threads.Hash() != want.Threads.Hash() {
			t.Errorf("%s differs: %s and %s\n%v\n%v", info.Subject, have.Ledger.Kind, want.Ledger.Kind, have.Threads, want.Threads)
		}
	}
	if count == 0 {
		t.Error("the folder has no session")
	}
	return other
}
