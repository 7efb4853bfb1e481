package tree

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/internal/testkit/storagetest"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
)

// With any programs that change files, any appends to the log, and kills at any point: at rest files and log agree, and
// no text is lost.
//
// L1: the files equal an export. L2: a text that settled in a file is in the log. L3: the tree's own writes are not
// edits, and at rest nothing happens. L5: without edits, the files equal the log at each commit. L6: no file shows an
// older revision than before. L7: the same after a kill at any point. L4, the files alone, is D-41 of each store; L8 is
// TestLinks, L9 TestTreeIdle.
func TestLaws(t *testing.T) {
	testkit.NotUnderRace(t) // the test has no concurrency
	struck := make(map[string]int)
	t.Run("documents", func(t *testing.T) { runPrograms(t, plainLand{}, countFor(testkit.Times(10_000), 100_000), struck) })
	t.Run("D-40 a team", func(t *testing.T) { runPrograms(t, tavernLand{}, countFor(testkit.Times(150), 20_000), struck) })
	t.Run("conversations", func(t *testing.T) { runPrograms(t, evalsLand{}, countFor(testkit.Times(150), 20_000), struck) })
	all := slices.Concat(points, []string{"mid temp", "before exchange", "before fsync"})
	for _, p := range points {
		all = append(all, "somebody wrote "+p)
	}
	for _, p := range all {
		if struck[p] == 0 && !t.Failed() {
			t.Errorf("no kill and no write of the user happened at the point %s", p)
		}
	}
	if struck[grew] == 0 && !t.Failed() {
		t.Error("no file grew")
	}
	t.Log(struck)
}

// grew counts the files that grew without a rendering.
const grew = "grew"

// points are the places where a tree is killed, in addition to those of its storage.
var points = []string{"before temp", "before swap", "after exchange", "before removal", "before unlink", "mid append", "before manifest", "before cursor", "way back: before read", "way back: after read", "way back: before append", "way back: after append"}

func runPrograms(t *testing.T, l land, programs int, struck map[string]int) {
	first := testkit.Seed(t)
	for n := range programs {
		runProgram(t, l, first+uint64(n), struck)
		if t.Failed() {
			return
		}
	}
}

// A land determines the content of a world: a layout, events that are appended, and texts that users write.
type land interface {
	layout() layouts.Layout
	root() layouts.Root
	api(w *world)                                   // appends an event
	path(w *world) string                           // of a file that a user may write, existing or not
	text(w *world, path string) (text, mark string) // text for the file, and a unique word in it
	kinds() []string                                // of subjects with files
	unknown() int                                   // number of files whose earlier presence in the log cannot be determined after a loss of the manifest
	records() int                                   // maximum number of records for one change of a file
}

// plainLand has documents.
type plainLand struct{}

func (plainLand) layout() layouts.Layout { return plainLayout{} }

func (plainLand) root() layouts.Root { return layouts.Root{} }

var paths = []string{"a", "b", "A", "d/a", "d/b", "d/e/a", "x.fixed"}

func (plainLand) path(w *world) string { return paths[w.random.IntN(len(paths))] }

func (plainLand) text(w *world, _ string) (text, mark string) {
	mark = w.mark()
	return mark, mark
}

func (l plainLand) api(w *world) {
	sub := events.Document(w.st.Namespace(), plainKind, l.path(w))
	doc, err := w.st.Loader().Document(context.Background(), sub, 0)
	if err == nil && w.random.IntN(4) == 0 {
		w.say("log: delete %s", sub.ID)
		e := need(events.New("urn:api", sub, &events.DocumentDeleted{Reason: "api"}))
		need(w.st.Append(context.Background(), sub, log.At(doc.Head), e))
		return
	}
	text := w.mark()
	w.say("log: write %s: %q", sub.ID, text)
	e := events.Event{Source: "urn:api", Type: events.TypeDocumentWritten, Subject: sub, ContentType: events.ContentTypeRaw, Data: []byte(text)}
	w.revised[sub.ID+"\x00"+text] = need(w.st.Append(context.Background(), sub, log.At(doc.Head), e)).Last
}

func (plainLand) unknown() int { return 0 }

// A moved file is a deleted document and a written one.
func (plainLand) records() int { return 4 }

func (plainLand) kinds() []string { return []string{plainKind} }

// wanted computes the expected files from the log alone.
func (w *world) wanted() map[string]string {
	ctx := context.Background()
	var list []*entry
	subs := make(map[*entry]events.Subject)
	known := make(map[events.Subject]bool)
	for _, kind := range w.land.kinds() {
		for info, err := range w.st.Subjects(ctx, kind) {
			must(w.t, err)
			sub, ok, err := w.land.layout().Entry(ctx, w.st, w.land.root(), info.Subject)
			must(w.t, err)
			if !ok || known[sub] {
				continue
			}
			known[sub] = true
			p, err := w.land.layout().Location(ctx, w.st, w.land.root(), sub)
			if isGone(err) {
				continue
			}
			must(w.t, err)
			u := &entry{want: p.Path, apart: p.Apart, folder: p.Folder, within: p.Files, first: events.MaxOffset}
			for rec := range w.st.Log.Read(ctx, events.Range{Subject: sub, Limit: 1}) {
				u.first = rec.Offset
			}
			list, subs[u] = append(list, u), sub
		}
	}
	assignPaths(list)
	files := make(map[string]string)
	for _, u := range list {
		for f, err := range w.land.layout().EntryFiles(ctx, w.st, w.land.root(), subs[u], u.path) {
			must(w.t, err)
			var b strings.Builder
			must(w.t, f.Write(&b))
			files[f.Path] = b.String()
		}
	}
	return files
}

// world is a store, a tree, and a user of its files.
type world struct {
	t        testing.TB
	random   *rand.Rand
	now      time.Time
	st       *tally.Store
	storage  storagetest.Whole
	over     func() // removes its files from the disk
	user     user
	manifest *memoryManifest
	tree     *Tree // nil: stopped
	runner   *projector.Runner
	texts    int
	written  map[string]*standing // by path: the last text of the user
	safe     map[string]string    // texts that must not be lost, with the reason
	changes  int                  // number of changes by the user
	trace    []string
	struck   map[string]int // number of kills by point
	kill     string
	meddle   string // point at which the user writes to a file
	untold   bool   // the tree was not notified of that
	land     land
	latest   map[string]events.Offset // by path: the newest revision that the file showed since the user's last write
	revised  map[string]events.Offset // by path and text: the document's revision with it
	wild     bool                     // a call may have failed, or the process was killed
	faults   int
	limit    int  // of changes that are imported without a question; 0: none
	losses   int  // number of losses of the manifest
	grown    int  // number of files that grew without a rendering
	faulty   bool // the storage fails now and then
	touched  bool // the user wrote to a file
	fold     bool
	large    bool                                     // most files exceed the tree's memory limit
	plan     func(storagetest.Call) storagetest.Fault // fault of each call of a faulty storage; nil: by chance
	target   layouts.Target                           // of the tree; nil: st
	meddled  map[string]bool                          // paths that the user changed at a point of the tree
}

// standing is a text that the user wrote to a file.
type standing struct {
	text  string
	mark  string // a unique word in it
	since time.Time
}

func newWorld(t testing.TB, l land, random *rand.Rand, fold bool) *world {
	w := &world{t: t, land: l, random: random, now: time.Unix(1_700_000_000, 0), st: openStore(t), manifest: &memoryManifest{}, fold: fold,
		written: make(map[string]*standing), safe: make(map[string]string), latest: make(map[string]events.Offset), revised: make(map[string]events.Offset)}
	reached = func(p string) {
		if w.kill == p {
			panic(killed(p))
		}
		if w.meddle == p { // the user writes between two steps of the tree
			w.meddle, w.untold = "", true
			w.say("  at %s:", p)
			w.struck["somebody wrote "+p]++
			w.change()
		}
	}
	growth = w.growth
	w.storage, w.user = w.openFiles(t, fold)
	return w
}

// growth compares appended data with the full files of an entry.
func (w *world) growth(t *Tree, sub events.Subject, at events.Offset, list []wantedFile) {
	w.grown += len(list)
	p, err := t.locationOf(context.Background(), t.as(at), sub)
	if u := t.entries[sub]; err != nil || p.Path != u.want || p.Apart != u.apart || p.Folder != u.folder || !slices.Equal(p.Files, u.within) {
		w.t.Errorf("%v is to be at %v, %v, but the appended data belong to %s", sub, p, err, u.want)
	}
	is := make(map[string]string)
	for _, p := range t.filesOf(sub) {
		is[p] = fmt.Sprintf("%s %o", t.files[p].sum, layouts.ModeOf(t.files[p].mode))
	}
	for _, f := range list {
		is[f.Path] = fmt.Sprintf("%s %o", f.sum, layouts.ModeOf(f.Mode))
	}
	to := make(map[string]string)
	for _, f := range need(t.render(context.Background(), sub, at)) {
		to[f.Path] = fmt.Sprintf("%s %o", f.sum, layouts.ModeOf(f.Mode))
	}
	if !maps.Equal(is, to) {
		w.t.Errorf("the files of %v grew to\n%s, want\n%s", sub, lines(is), lines(to))
	}
}

func runProgram(t testing.TB, l land, seed uint64, struck map[string]int) {
	random := rand.New(rand.NewPCG(seed, 1))
	w := newWorld(t, l, random, random.IntN(4) == 0 && !onDisk)
	if w.over != nil {
		defer w.over()
	}
	w.faulty, w.struck = random.IntN(2) == 0, struck
	w.wild = w.faulty
	w.large = random.IntN(4) == 0
	quiet := w.random.IntN(5) == 0
	w.start()
	defer func() {
		if t.Failed() {
			t.Logf("seed %d:\n%s", seed, strings.Join(w.trace, "\n"))
		}
	}()
	for range 5 + w.random.IntN(25) {
		if quiet {
			w.land.api(w)
			if struck := w.land.unknown() > 0 && w.random.IntN(8) == 0; struck {
				w.strike()
				if w.kill, w.meddle = "mid append", ""; w.random.IntN(2) == 0 {
					w.kill, w.meddle = "", "mid append"
				}
			}
			w.project()
		} else {
			w.step()
		}
		if t.Failed() {
			return
		}
	}
	w.rest()
	w.check()
}

func (w *world) say(format string, args ...any) {
	w.trace = append(w.trace, w.now.Format("05.000 ")+fmt.Sprintf(format, args...))
}

// fault determines the result of a storage call.
func (w *world) fault(c storagetest.Call) storagetest.Fault {
	if !w.faulty {
		return storagetest.None
	}
	plan := w.plan
	if plan == nil {
		plan = w.chance
	}
	f := plan(c)
	if f != storagetest.None {
		w.faults++
		w.say("  %v: %v", c, f)
	}
	return f
}

// chance draws the result of a storage call.
func (w *world) chance(storagetest.Call) storagetest.Fault {
	switch n := w.random.IntN(400); {
	case n < 8:
		return storagetest.Fault(1 + n%3) // Fail, Unanswered, Torn
	case n < 12:
		return storagetest.Fault(4 + n%4) // Kill...
	}
	return storagetest.None
}

func (w *world) start() {
	w.prepare()
	w.alive(func(ctx context.Context) {
		if _, _, err := w.tree.Begin(ctx); err != nil && !errors.Is(err, storagetest.ErrFaulty) {
			w.t.Error(err)
		}
	})
}

// prepare makes a tree that has not begun.
func (w *world) prepare() {
	target := w.target
	if target == nil {
		target = w.st
	}
	c := Config{Name: "law", Layout: w.land.layout(), Root: w.land.root(), Storage: storagetest.NewFaultyWhole(w.storage, w.fault), Target: target, Head: w.st.Log.Durable, BulkLimit: cmp.Or(w.limit, -1), Now: func() time.Time { return w.now }}
	w.tree = newTree(c, w.manifest)
	if w.large {
		w.tree.heldRendered = 40
		if _, alone := w.land.(plainLand); alone || !w.faulty { // a layout that reads outside of the storage cannot be killed there
			w.tree.heldEdit = 40
		}
	}
	w.runner = &projector.Runner{Log: w.st.Log, View: w.tree}
	w.say("start")
	for _, s := range w.written {
		s.since = w.now
	}
}

// alive calls do, in which the process may be killed.
func (w *world) alive(do func(ctx context.Context)) {
	defer func() {
		if p := recover(); p != nil {
			switch k := p.(type) {
			case killed:
				w.struck[string(k)]++
			case *storagetest.Kill:
				switch {
				case k.Op == "swap" && k.Fault == storagetest.KillHalf:
					w.struck["mid temp"]++
				case k.Op == "swap" && k.Fault == storagetest.KillWhole:
					w.struck["before exchange"]++
				case k.Op == "sync" && k.Fault == storagetest.KillBefore:
					w.struck["before fsync"]++
				}
			default:
				panic(p)
			}
			w.say("killed at %v", p)
			w.tree, w.kill = nil, ""
			for _, s := range w.written {
				s.since = time.Time{} // it is stopped, so no tree sees the file
			}
		}
	}()
	if w.tree != nil {
		do(context.Background())
	}
	if w.untold && w.tree != nil { // the watcher notifies the tree as soon as it listens
		w.untold = false
		w.tree.Changed("")
	}
}

type killed string

func (w *world) mark() string {
	w.texts++
	return fmt.Sprintf("text%d.\n", w.texts)
}

func (w *world) step() {
	switch n := w.random.IntN(20); {
	case n < 4:
		w.land.api(w)
	case n < 10:
		w.foreign()
	case n < 13:
		w.pass(time.Duration(w.random.IntN(300)) * time.Millisecond)
	case n < 14:
		w.pass(3 * time.Second)
	case n < 17:
		w.project()
	case n < 18:
		w.strike()
	case n < 19:
		w.end()
	case w.limit == 0: // the file of a conflict that was answered since would have no owner
		w.lose()
	}
}

// foreign changes a file, and notifies the tree.
func (w *world) foreign() {
	w.change()
	w.tell()
}

// change changes a file.
func (w *world) change() {
	p := w.spelled(w.land.path(w))
	w.leave(p)
	var err error
	w.changes++
	w.touched = true
	switch w.random.IntN(7) {
	case 0, 1:
		text, mark := w.land.text(w, p)
		w.say("file: write %s: %q", p, text)
		if err = w.user.Put(p, text); err == nil {
			w.wrote(p, text, mark)
		}
	case 2:
		text, mark := w.land.text(w, p)
		w.say("file: rename over %s: %q", p, text)
		if err = w.user.Put(p+"~", text); err == nil {
			if err = w.user.Rename(p+"~", p); err == nil {
				w.wrote(p, text, mark)
			}
		}
	case 3:
		have, ok := w.user.Files()[p]
		text := w.mark()
		w.say("file: append to %s: %q", p, text)
		if err = w.user.Append(p, text); err == nil {
			if !ok {
				have = ""
			}
			w.wrote(p, have+text, text)
		}
	case 4:
		w.say("file: remove %s", p)
		err = w.user.Remove(p)
		delete(w.written, p)
	case 5:
		q := w.spelled(w.land.path(w))
		w.leave(q)
		have, ok := w.user.Files()[p]
		w.say("file: move %s to %s", p, q)
		if err = w.user.Rename(p, q); err == nil && ok {
			s := w.written[p]
			delete(w.written, p)
			if s != nil && s.text == have {
				w.wrote(q, have, s.mark)
			}
		}
	case 6:
		w.say("file: touch %s", p)
		if have, ok := w.user.Files()[p]; ok {
			err = w.user.Put(p, have)
		}
	}
	if err != nil {
		w.say("  %v", err)
	}
}

// spelled returns the existing spelling of a path, where case is ignored.
func (w *world) spelled(p string) string {
	for q := range w.user.Files() {
		if w.fold && strings.EqualFold(p, q) {
			return q
		}
	}
	return p
}

// wrote notes a text that the user wrote to a file.
func (w *world) wrote(p, text, mark string) { w.written[p] = &standing{text, mark, w.now} }

// leave notes that the user is about to replace a text. The text must not be lost if the tree replaced it before, or
// had time to see it.
func (w *world) leave(p string) {
	clear(w.latest)
	for q, s := range w.written {
		if q != p && !strings.HasPrefix(q, p+"/") && !strings.HasPrefix(p, q+"/") {
			continue
		}
		if have, ok := w.user.Files()[q]; !ok || have != s.text {
			w.safe[s.mark] = "the tree replaced it in " + q
		} else if w.tree != nil && !w.faulty && !s.since.IsZero() && w.tree.knowsLog() && w.now.Sub(s.since) > settleGone+settle {
			w.safe[s.mark] = "it had stood in " + q
		}
		delete(w.written, q)
	}
}

// tell notifies the tree that any path may have changed, like a watcher.
func (w *world) tell() {
	if w.tree != nil {
		w.tree.Changed("")
		w.alive(func(ctx context.Context) { w.tree.Tick(ctx, w.now) })
	}
}

// pass advances the time.
func (w *world) pass(d time.Duration) {
	w.say("%v pass", d)
	for end := w.now.Add(d); w.now.Before(end); {
		w.now = w.now.Add(min(end.Sub(w.now), 50*time.Millisecond))
		w.alive(func(ctx context.Context) { w.tree.Tick(ctx, w.now) })
		if w.tree != nil && !w.tree.knowsLog() {
			for _, s := range w.written {
				s.since = w.now // its runner comes first
			}
		}
	}
}

// project updates the files to the log.
func (w *world) project() {
	w.say("catch up")
	w.alive(func(ctx context.Context) {
		err := w.runner.CatchUp(ctx, nil)
		if _, asks := errors.AsType[*BulkError](err); asks && w.limit > 0 {
			return
		}
		if err != nil && !errors.Is(err, storagetest.ErrFaulty) {
			w.t.Errorf("catch up: %v", err)
		}
	})
	if _, plain := w.land.(plainLand); plain {
		w.forward()
	}
	if !w.touched && !w.wild && w.tree != nil {
		// L5: without edits, the files equal the log at the cursor.
		if got, want := w.files(), w.wanted(); !maps.Equal(got, want) {
			w.t.Errorf("L5: the files are\n%v, the log has\n%v", lines(got), lines(want))
		}
	}
}

// forward checks L6: no file shows an older revision after a newer one.
func (w *world) forward() {
	for _, p := range []string{"b", "d/a", "d/b", "d/e/a"} { // names that no other document can get
		at, ok := w.revised[p+"\x00"+w.user.Files()[p]]
		if ok && at < w.latest[p] {
			w.t.Errorf("L6: %s shows %v, and showed %v before", p, at, w.latest[p])
		}
		if ok {
			w.latest[p] = at
		}
	}
}

// files returns the files without temporary and backup files.
func (w *world) files() map[string]string {
	files := w.user.Files()
	maps.DeleteFunc(files, func(p, _ string) bool { return strings.HasSuffix(p, "~") || layouts.IsTemporary(p) })
	return files
}

// strike schedules a kill at a point, or a write of the user there.
func (w *world) strike() {
	w.wild = true
	if w.random.IntN(2) == 0 {
		w.meddle = points[w.random.IntN(len(points))]
		w.say("somebody is to write at %s", w.meddle)
		return
	}
	w.kill = points[w.random.IntN(len(points))]
	w.say("to be killed at %s", w.kill)
}

// end ends the process, and restarts it.
func (w *world) end() {
	if w.tree != nil {
		if w.random.IntN(2) == 0 {
			w.say("close")
			w.alive(func(context.Context) { _ = w.tree.Close() })
		} else {
			w.say("kill")
		}
		w.tree = nil
	}
	w.start()
}

// lose deletes the manifest.
func (w *world) lose() {
	w.say("the manifest is lost")
	w.losses++
	w.wild = true
	if w.tree != nil {
		w.tree = nil
	}
	w.manifest = &memoryManifest{}
	w.start()
}

// rest waits until all activity ends.
func (w *world) rest() {
	w.kill, w.meddle, w.faulty = "", "", false
	if w.tree == nil {
		w.start()
	}
	w.pass(15 * time.Second) // until failures are retried
	w.tell()
	for range 3 {
		w.project()
		w.pass(5 * time.Second)
	}
	w.project()
	w.pass(5 * time.Second)
	for _, p := range slices.Collect(maps.Keys(w.written)) {
		w.safe[w.written[p].mark] = "it was the last in " + p
	}
}

func (w *world) check() {
	ctx := context.Background()
	// L3: nothing happens at rest.
	head := need(w.st.Log.Durable(ctx))
	files := w.user.Files()
	w.pass(10 * time.Second)
	if now := need(w.st.Log.Durable(ctx)); now != head {
		w.t.Errorf("L3: something was appended at rest: %v to %v", head, now)
	}
	if now := w.user.Files(); !maps.Equal(now, files) {
		w.t.Errorf("L3: files changed at rest: %v, were %v", now, files)
	}
	// L1: the files equal the log.
	want := w.wanted()
	var all strings.Builder
	ours := 0
	for rec, err := range w.st.Log.Read(ctx, events.Range{}) {
		must(w.t, err)
		all.Write(rec.Data)
		if rec.Extensions[events.ExtActor] == "tree:law" {
			ours++
		}
	}
	for _, c := range need(w.tree.Conflicts(ctx)) {
		want[c.Copy] = string(need(w.st.Loader().Document(ctx, events.Document(w.st.Namespace(), KindConflict, c.ID), 0)).Data)
	}
	got := maps.Clone(files)
	maps.DeleteFunc(got, func(p, _ string) bool { return strings.HasSuffix(p, "~") })
	if w.fold {
		got, want = lower(got), lower(want)
	}
	if !maps.Equal(got, want) {
		w.t.Errorf("L1: the files are\n%v, the log has\n%v; skipped %v stuck %v", lines(got), lines(want), w.tree.skipped, w.tree.stuck)
	}
	// L2: no text is lost.
	for mark, why := range w.safe {
		if !strings.Contains(all.String(), strings.TrimSpace(mark)) {
			w.t.Errorf("L2: %q is lost: %s", mark, why)
		}
	}
	// L3: the number of appends is bounded by the number of changes. After a failure, the tree's own text may be kept
	// as a user's. After a loss of the manifest, so may the text of another document under a name that the storage
	// treats as equal.
	unknown := w.land.unknown()
	if w.fold {
		unknown++
	}
	if ours > w.land.records()*(w.changes+w.faults)+unknown*w.losses {
		w.t.Errorf("L3: the tree appended %d events for %d changes", ours, w.changes)
	}
	if w.t.Failed() {
		for rec := range w.st.Log.Read(ctx, events.Range{}) {
			w.say("%v %v %v %q %v", rec.Offset, rec.Subject, rec.Extensions[events.ExtActor], rec.Data, rec.Extensions[events.ExtDoc])
		}
	}
	if problems := need(w.tree.Verify(ctx)); len(problems) > 0 {
		w.t.Errorf("verify: %v", problems)
	}
	w.struck[grew] += w.grown
}

func lines(m map[string]string) string {
	var b strings.Builder
	for _, k := range slices.Sorted(maps.Keys(m)) {
		fmt.Fprintf(&b, "  %s: %q\n", k, m[k])
	}
	return b.String()
}

func countFor(few, many int) int {
	if testkit.Soak() {
		return many
	}
	return few
}

func lower(m map[string]string) map[string]string {
	low := make(map[string]string)
	for p, text := range m {
		low[strings.ToLower(p)] += text
	}
	return low
}
