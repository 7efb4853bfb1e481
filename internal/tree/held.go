package tree

import (
	"context"
	"errors"
	"time"

	"github.com/tallylog/tally/events"
)

// While the tree asks, or waits for more to change, texts go on being saved. Each that stood
// still is in the log before another one replaces it:
//   - A question about files that are gone or empty holds back those alone. Other texts are taken in.
//   - A question about more than the limit holds back everything, and so does a wait for more. The
//     texts are kept as conflicts meanwhile, which are closed when they are taken in, or when
//     somebody decides to drop them. A text that was overwritten while the tree asked stays listed.

// maxKept bounds how many new files are kept for one question: a whole archive may have been
// unpacked. Those beyond it are in the log when they are overwritten.
const maxKept = 1000

// isLoss reports whether an edit takes a text away: the file is gone, or was emptied. The caller
// holds mu.
func (t *Tree) isLoss(e *edit) bool {
	have := t.files[e.path]
	return e.gone || e.size == 0 && have != nil && have.size > 0
}

// texts are the edits that take nothing away and that the log does not have yet. The caller holds mu.
func (t *Tree) texts() map[string]*edit {
	lost := make(map[string]bool)
	for p, e := range t.edits {
		if have := t.files[p]; have != nil && t.isLoss(e) {
			lost[have.sum] = true
		}
	}
	list := make(map[string]*edit)
	for p, e := range t.edits {
		isMoved := t.files[p] == nil && lost[e.sum] // a file of the question under another name
		if !t.isLoss(e) && e.kept == "" && !isMoved && e.sum != nothing {
			list[p] = e
		}
	}
	return list
}

// holdTexts has the log have what was saved while the tree asks or waits. The caller holds mu.
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
			next = sooner(next, due) // it may be taken in before
			continue
		}
		if have := t.files[p]; have == nil {
			if kept++; kept > maxKept && e.data != nil {
				continue
			}
		} else if have.sum == e.sum {
			continue // only its mode changed
		}
		if err := t.hold(ctx, e); err != nil {
			t.c.Logger.Warn("what somebody wrote to a file cannot be stored, and is tried again", "tree", t.c.Name, "path", p, "err", err)
			next = sooner(next, now.Add(time.Second))
		}
	}
	return next
}

// hold keeps an edit that the tree asks about.
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
	k := keeping{path: e.path, unit: e.unit, sum: e.sum, reason: "it was saved while the tree asked", read: t.reader(ctx, e), held: true}
	if have := t.files[e.path]; have != nil {
		k.base, k.unit = have.at, have.unit
	}
	return k
}

// release closes what was kept of an edit: its text is in the log as what it was meant to be, or
// somebody decided to drop it.
func (t *Tree) release(ctx context.Context, e *edit) {
	if e.kept == "" {
		return
	}
	err := t.close(ctx, events.Document(t.c.Target.Namespace(), KindConflict, e.kept))
	if err != nil && !isGone(err) {
		t.c.Logger.Warn("a conflict that is over cannot be closed", "tree", t.c.Name, "conflict", e.kept, "err", err)
	}
	delete(t.holding, e.kept)
	e.kept = ""
}

// leaveOpen has a text that was kept be listed and stand beside its file: nobody decides on it any
// more. The caller holds mu.
func (t *Tree) leaveOpen(e *edit) {
	if e.kept == "" || !t.holding[e.kept] {
		return
	}
	delete(t.holding, e.kept)
	sub := events.Document(t.c.Target.Namespace(), KindConflict, e.kept)
	if t.units[sub] == nil {
		return // its record was not read yet
	}
	t.writeAgain(sub)
	t.again = t.c.Now()
	t.stir()
}

// overtaken has the log have the text of an edit that was not taken in before the file changed
// again. next is what the file is now; nil: what the tree knows. The caller holds mu.
func (t *Tree) overtaken(ctx context.Context, e, next *edit) {
	if next != nil && next.sum == e.sum && next.gone == e.gone {
		next.kept, next.asked, next.since = e.kept, e.asked, e.since
		return
	}
	if e.dropped || e.gone || e.sum == nothing {
		return
	}
	isBack := next == nil || next.gone && t.files[e.path] == nil // as it was before the edit
	e.isBack = isBack
	if t.owed = append(t.owed, e); len(t.owed) == 1 {
		t.payOwed(ctx, t.c.Now())
	}
}

// payOwed has the log have texts that were overtaken, in their order. What fails is tried again.
func (t *Tree) payOwed(ctx context.Context, now time.Time) (next time.Time) {
	for len(t.owed) > 0 {
		e := t.owed[0]
		if err := t.payOne(ctx, e); err != nil {
			t.c.Logger.Warn("what somebody wrote to a file and replaced cannot be stored, and is tried again", "tree", t.c.Name, "path", e.path, "err", err)
			return now.Add(time.Second)
		}
		t.owed = t.owed[1:]
	}
	return time.Time{}
}

// payOne has the log have a text that its file has no longer: as a revision, or, if the tree asks
// or the file is again as it was, as a conflict.
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

// importText takes in a text that its file has no longer. If the log moves on each time, the text is
// kept as a conflict.
func (t *Tree) importText(ctx context.Context, e *edit) error {
	for range 5 {
		head, err := t.c.Head(ctx)
		if err != nil {
			return err
		}
		units, err := t.grouped(ctx, map[string]*edit{e.path: e}, head)
		if err != nil || len(units) == 0 {
			return err
		}
		if err = t.importUnit(ctx, units[0]); !errors.Is(err, errMoved) {
			return err
		}
	}
	return t.keep(ctx, t.keepingOf(ctx, e))
}

// lately are the paths whose edits were taken in a moment ago, without those that changed again.
func (t *Tree) lately(now time.Time) map[string]bool {
	for len(t.recent) > 0 && now.Sub(t.recent[0].at) > together {
		t.recent = t.recent[1:]
	}
	list := make(map[string]bool) // a path that is saved again and again counts once
	for _, r := range t.recent {
		if t.edits[r.path] == nil && t.noticed[r.path] == nil {
			list[r.path] = true
		}
	}
	return list
}
