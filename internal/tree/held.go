package tree

import (
	"context"
	"errors"
	"time"

	"github.com/tallylog/tally/events"
)

// While the tree asks, or waits for more changes, users continue to save texts. Each text that settled is stored in the
// log before another text replaces it:
//   - A question about missing or empty files holds back only these. Other texts are imported.
//   - A question about more changes than the limit holds back everything, and so does a wait for more. Meanwhile the texts
//     are kept as conflicts. These are closed when the texts are imported, or when a user decides to drop them. A text
//     that was overwritten during the question stays listed.

// maxKept bounds the new files that are kept for one question, for example from an unpacked archive. Further files are
// stored in the log when they are overwritten.
const maxKept = 1000

// isLoss reports whether an edit removes a text: the file is missing or was emptied. The caller holds mu.
func (t *Tree) isLoss(e *edit) bool {
	have := t.files[e.path]
	return e.gone || e.size == 0 && have != nil && have.size > 0
}

// texts returns the edits that remove nothing and are not in the log yet. The caller holds mu.
func (t *Tree) texts() map[string]*edit {
	lost := make(map[string]bool)
	for p, e := range t.edits {
		if have := t.files[p]; have != nil && t.isLoss(e) {
			lost[have.sum] = true
		}
	}
	list := make(map[string]*edit)
	for p, e := range t.edits {
		isMoved := t.files[p] == nil && lost[e.sum] // a renamed file of the question
		if !t.isLoss(e) && e.kept == "" && !isMoved && e.sum != nothing {
			list[p] = e
		}
	}
	return list
}

// holdTexts stores the texts that were saved while the tree asks or waits. The caller holds mu.
func (t *Tree) holdTexts(ctx context.Context, now time.Time) (next time.Time) {
	list := t.texts()
	if len(list) == 0 || t.asking != nil && t.asking.Moved {
		return time.Time{}
	}
	if t.asking != nil && !t.asking.many && !t.isMany(len(list)+len(t.lately(now))) {
		return t.importSettled(ctx, now, list)
	}
	kept := 0
	for p, e := range t.edits {
		if t.files[p] == nil && e.kept != "" {
			kept++
		}
	}
	for p, e := range list {
		due := e.since.Add(settleGone - settle)
		if t.asking == nil && due.After(now) {
			next = sooner(next, due) // it may be imported earlier
			continue
		}
		if have := t.files[p]; have == nil {
			if kept++; kept > maxKept && e.data != nil {
				continue
			}
		} else if have.sum == e.sum {
			continue // only the mode changed
		}
		if err := t.hold(ctx, e); err != nil {
			t.c.Logger.Warn("an edit cannot be stored, will retry", "tree", t.c.Name, "path", p, "err", err)
			next = sooner(next, now.Add(time.Second))
		}
	}
	return next
}

// hold keeps an edit of the current question as a conflict.
func (t *Tree) hold(ctx context.Context, e *edit) error {
	k := t.keepingOf(ctx, e)
	if err := t.keep(ctx, k); err != nil {
		return err
	}
	e.kept = t.keptAs(k)
	t.holding[e.kept] = true
	return nil
}

func (t *Tree) keepingOf(ctx context.Context, e *edit) keeping {
	k := keeping{path: e.path, entry: e.entry, sum: e.sum, reason: "it was saved while the tree asked", read: t.reader(ctx, e), held: true}
	if have := t.files[e.path]; have != nil {
		k.base, k.entry = have.at, have.entry
	}
	return k
}

// release closes the conflict of an edit: its text was imported, or a user decided to drop it.
func (t *Tree) release(ctx context.Context, e *edit) {
	if e.kept == "" {
		return
	}
	err := t.close(ctx, events.Document(t.c.Target.Namespace(), KindConflict, e.kept))
	if err != nil && !isGone(err) {
		t.c.Logger.Warn("a resolved conflict cannot be closed", "tree", t.c.Name, "conflict", e.kept, "err", err)
	}
	delete(t.holding, e.kept)
	e.kept = ""
}

// leaveOpen makes the conflict of a text a regular one, listed and with a file, because no user will decide on it. The
// caller holds mu.
func (t *Tree) leaveOpen(e *edit) {
	if e.kept == "" || !t.holding[e.kept] {
		return
	}
	delete(t.holding, e.kept)
	sub := events.Document(t.c.Target.Namespace(), KindConflict, e.kept)
	if t.entries[sub] == nil {
		return // its record was not read yet
	}
	t.writeAgain(sub)
	t.again = t.c.Now()
	t.stir()
}

// overtaken stores the text of an edit that was not imported before the file changed again. next is the new edit; nil
// means that the file has its known content. The caller holds mu.
func (t *Tree) overtaken(ctx context.Context, e, next *edit) {
	if next != nil && next.sum == e.sum && next.gone == e.gone {
		next.kept, next.asked, next.since = e.kept, e.asked, e.since
		return
	}
	if e.dropped || e.gone || e.sum == nothing {
		return
	}
	isBack := next == nil || next.gone && t.files[e.path] == nil // the state before the edit
	e.isBack = isBack
	if t.owed = append(t.owed, e); len(t.owed) == 1 {
		t.payOwed(ctx, t.c.Now())
	}
}

// payOwed stores overtaken texts in order. Failures are retried.
func (t *Tree) payOwed(ctx context.Context, now time.Time) (next time.Time) {
	for len(t.owed) > 0 {
		e := t.owed[0]
		if err := t.payOne(ctx, e); err != nil {
			t.c.Logger.Warn("an overwritten edit cannot be stored, will retry", "tree", t.c.Name, "path", e.path, "err", err)
			return now.Add(time.Second)
		}
		t.owed = t.owed[1:]
	}
	return time.Time{}
}

// payOne stores a text that its file no longer has: as a revision, or as a conflict if the tree asks or the file has
// its former content.
func (t *Tree) payOne(ctx context.Context, e *edit) error {
	if t.asking == nil && !e.isBack && e.data != nil {
		err := t.importText(ctx, e)
		if err == nil {
			t.release(ctx, e)
		}
		return err
	}
	if e.kept == "" && e.data != nil {
		if err := t.hold(ctx, e); err != nil {
			return err
		}
	}
	if e.isBack {
		t.release(ctx, e)
	}
	t.leaveOpen(e)
	return nil
}

// importText imports a text that its file no longer has. If the log keeps changing, the text is kept as a conflict.
func (t *Tree) importText(ctx context.Context, e *edit) error {
	for range 5 {
		head, err := t.c.Head(ctx)
		if err != nil {
			return err
		}
		entries, err := t.grouped(ctx, map[string]*edit{e.path: e}, head)
		if err != nil || len(entries) == 0 {
			return err
		}
		if err = t.importEntry(ctx, entries[0]); !errors.Is(err, errMoved) {
			return err
		}
	}
	return t.keep(ctx, t.keepingOf(ctx, e))
}

// lately returns the paths of recently imported edits, except those that changed again.
func (t *Tree) lately(now time.Time) map[string]bool {
	for len(t.recent) > 0 && now.Sub(t.recent[0].at) > together {
		t.recent = t.recent[1:]
	}
	list := make(map[string]bool) // a path that is saved repeatedly counts once
	for _, r := range t.recent {
		if t.edits[r.path] == nil && t.noticed[r.path] == nil {
			list[r.path] = true
		}
	}
	return list
}
