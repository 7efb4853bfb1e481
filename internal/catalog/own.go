package catalog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"slices"

	"modernc.org/sqlite"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/projector"
)

// Own defines a view that a program brings. Package projector/view has what programs use.
type Own struct {
	Name    string
	Version int // of the definition; each version has a file of its own
	Types   []events.Type
	Tables  []string // that Schema creates, without {set}
	Schema  string   // CREATE TABLE statements, with {set} at the end of each name

	// Fold folds facts of a subject, in order. again tells that Forget was called before, and that the facts are all
	// that the subject has. An error makes it a quarantined subject.
	Fold func(ctx context.Context, t Tables, sub events.Subject, again bool, facts iter.Seq2[projector.Fact, error]) error
	// Once tells that Fold executes one statement, as its last act. A fold that fails has then changed nothing.
	Once bool
	// Forget removes all rows of a subject.
	Forget func(ctx context.Context, t Tables, sub events.Subject) error
}

// Tables are the tables of an own view, in the transaction that moves the view.
type Tables interface {
	Exec(ctx context.Context, text string, args ...any) error
	Find(ctx context.Context, text string, args, into []any) (bool, error)
}

// shiftedTable lists the subjects with a record that shifts. Only they can have a stale record.
const shiftedTable = "shifted"

const shiftedSchema = `
CREATE TABLE shifted{set}(namespace TEXT NOT NULL, kind TEXT NOT NULL, id TEXT NOT NULL, PRIMARY KEY(namespace, kind, id)) WITHOUT ROWID;
`

// View returns the view. If the definition is wrong, View.Err says why.
func (o Own) View() View {
	fm := form{view: o.Name, version: ownVersion(o.Version), tables: append(slices.Clone(o.Tables), shiftedTable), schema: o.Schema + ";" + shiftedSchema}
	v := View{Name: o.Name, File: ownFile(o.Name, o.Version), Pace: projector.Patient, form: fm, own: true, types: o.Types, older: older(o.Types)}
	if v.err = o.check(); v.err != nil {
		v.err = fmt.Errorf("view %q: %w", o.Name, v.err)
	}
	moves := v.moves()
	v.open = func(path, set string, lg *slog.Logger) Edition {
		return &ownView{viewFile: viewFile{form: fm, path: path, set: set, logger: lg}, def: o, moves: moves}
	}
	return v
}

// older returns the older types that types read, each with its movement. A type that the list has itself is not one.
func older(types []events.Type) (list []events.Type) {
	for _, t := range types {
		for _, name := range t.Older() {
			if !slices.ContainsFunc(slices.Concat(types, list), func(o events.Type) bool { return o.Name == name }) {
				list = append(list, events.Type{Name: name, Moves: t.Moves})
			}
		}
	}
	return list
}

// ownView is an own view, for the process that writes it. It is a projector.View. It holds the facts of a batch by
// subject and folds them at the commit, so that a subject that shifted is folded once, and a state is read and written
// once.
type ownView struct {
	viewFile
	def    Own
	moves  map[string]string // movement by type, for the types that the view wants
	loader *projector.Loader

	groups map[events.Subject]*group
	order  []*group                         // of the first fact
	held   int64                            // memory of the facts, in bytes
	out    map[events.Subject]events.Offset // subjects in quarantine, each with the record from which on it is not folded
	seed   map[events.Subject]events.Offset // the quarantine of another edition, whose states this one has
	failed []projector.Quarantine           // since the last SetAside
	broken error                            // error of the file or the log during a fold
}

// group has the facts of a subject since the last commit.
type group struct {
	subject events.Subject
	facts   []projector.Fact // certain ones, before again
	again   events.Offset    // the first record that makes the view fold the subject from its first record; 0: none
	isNew   bool             // after Forget: the rows of before may have what the log has erased
	aside   events.Offset    // with isNew, the quarantine of before; 0: none
	shifted *bool            // whether a record of the subject shifts; nil: not known
}

const perFact = 400 // approximate memory of a fact without its data, in bytes

// Name implements projector.View.
func (v *ownView) Name() string { return v.view }

// Uses implements the Runner's optional interface.
func (v *ownView) Uses(l *projector.Loader) { v.loader = l }

func (v *ownView) clear() {
	v.groups, v.order, v.held = make(map[events.Subject]*group), nil, 0
}

// Begin implements projector.View.
func (v *ownView) Begin(ctx context.Context) (projector.Cursor, []projector.Quarantine, error) {
	v.clear()
	v.failed, v.out = nil, make(map[events.Subject]events.Offset)
	maps.Copy(v.out, v.seed)
	c, list, err := v.begin(ctx)
	for _, q := range list {
		v.out[q.Subject] = q.Offset
	}
	return c, list, err
}

// Reset implements projector.View.
func (v *ownView) Reset(ctx context.Context) error {
	v.clear()
	v.out = make(map[events.Subject]events.Offset)
	maps.Copy(v.out, v.seed)
	return v.reset(ctx)
}

// Held implements projector.View.
func (v *ownView) Held() int64 { return v.held }

// Apply implements projector.View.
func (v *ownView) Apply(ctx context.Context, f projector.Fact) error {
	v.held += perRecord // also of unwanted records: a commit moves the cursor past them
	_, isWanted := v.moves[f.Type]
	shifts := projector.Shifts(f)
	if from, is := v.out[f.Subject]; is && f.Offset >= from || !shifts && (!isWanted || f.Invalid != nil) {
		return nil // an invalid record is never in effect
	}
	g := v.groups[f.Subject]
	if g == nil {
		g = &group{subject: f.Subject}
		v.groups[f.Subject], v.order = g, append(v.order, g)
		v.held += perFact
	}
	if shifts {
		g.shifted = &shifts
	}
	if g.again != 0 {
		return nil // folding again finds the record
	}
	isCertain := !shifts && projector.IsCertain(f, true)
	if !shifts && !isCertain && projector.IsCertain(f, false) {
		shifted, err := v.isShifted(ctx, g)
		if err != nil {
			return err
		}
		isCertain = !shifted
	}
	if !isCertain {
		g.again = f.Offset
		return nil
	}
	g.facts = append(g.facts, f)
	v.held += perFact + int64(len(f.Data))
	return nil
}

// isShifted reports whether a record of the subject shifts.
func (v *ownView) isShifted(ctx context.Context, g *group) (bool, error) {
	if g.shifted == nil {
		var n int
		sub := g.subject
		found, err := v.find(context.WithoutCancel(ctx), "SELECT 1 FROM shifted{set} WHERE namespace=? AND kind=? AND id=?", []any{sub.Namespace, sub.Kind, sub.ID}, []any{&n})
		if err != nil {
			return false, v.wrap(err)
		}
		g.shifted = &found
	}
	return *g.shifted, nil
}

// Quarantine implements projector.View. Apply returns no error that leads here.
func (v *ownView) Quarantine(q projector.Quarantine) {
	v.out[q.Subject] = q.Offset
	v.aside = append(v.aside, q)
	delete(v.groups, q.Subject)
	v.order = slices.DeleteFunc(v.order, func(g *group) bool { return g.subject == q.Subject })
}

// SetAside returns the subjects that the last commit put into quarantine.
func (v *ownView) SetAside() []projector.Quarantine {
	list := v.failed
	v.failed = nil
	return list
}

// Forget implements projector.View. The next commit folds the subject again.
func (v *ownView) Forget(_ context.Context, sub events.Subject) error {
	g := &group{subject: sub, again: max(v.out[sub], 1), isNew: true, aside: v.out[sub]}
	v.groups[sub], v.order = g, append(v.order, g)
	delete(v.out, sub)
	v.forgotten = append(v.forgotten, sub)
	return nil
}

// Commit implements projector.View.
func (v *ownView) Commit(ctx context.Context, c projector.Cursor) error {
	v.failed, v.broken = nil, nil
	err := v.commit(ctx, c, func(context.Context) error {
		for _, g := range v.order {
			if err := v.settle(ctx, g, c.Offset); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		v.failed = nil
		return err
	}
	for _, q := range v.failed {
		v.out[q.Subject] = q.Offset
	}
	v.clear()
	return nil
}

// settle folds the facts of a subject. If a fold fails, the subject keeps the state before the record that failed, or
// before the record that made the view fold it again. If the rows of before are not valid, it gets the state of now
// before the record that failed.
func (v *ownView) settle(ctx context.Context, g *group, upto events.Offset) error {
	var q projector.Quarantine
	fails := func(at events.Offset, err error) bool {
		fold, is := errors.AsType[*projector.FoldError](err)
		if is {
			q = projector.Quarantine{Subject: g.subject, Offset: at, Reason: fold.Error()}
		}
		return is
	}
	if from, is := v.out[g.subject]; is {
		upto = min(upto, from-1)
	}
	if g.again != 0 {
		last, err := v.try(ctx, g.subject, true, effective(ctx, v.loader, v.moves, g.subject, upto))
		if err == nil {
			return v.noteShift(ctx, g)
		}
		if !fails(g.again, err) {
			return err
		}
		if g.isNew {
			if q.Offset, err = v.foldBefore(ctx, g.subject, cmp.Or(g.aside, last)); err != nil {
				return err
			}
		}
	}
	for n, tries := len(g.facts), 0; n > 0; tries++ {
		last, err := v.try(ctx, g.subject, false, seqOf(g.facts[:n]))
		if err == nil {
			break
		}
		n = 0
		if tries == 0 { // else the fold fails at its end: for example, the state cannot be encoded
			n = max(0, slices.IndexFunc(g.facts, func(f projector.Fact) bool { return f.Offset == last }))
		}
		if !fails(g.facts[n].Offset, err) {
			return err
		}
	}
	if q.Reason != "" {
		v.logger.Debug("fold failed", "view", v.view, "subject", g.subject, "offset", uint64(q.Offset), "err", q.Reason)
		v.aside, v.failed = append(v.aside, q), append(v.failed, q)
	}
	return nil
}

// foldBefore folds a subject again as of before a record, or before an earlier one if that fails, too. It returns which.
func (v *ownView) foldBefore(ctx context.Context, sub events.Subject, at events.Offset) (events.Offset, error) {
	for {
		var facts iter.Seq2[projector.Fact, error] = func(func(projector.Fact, error) bool) {}
		if at > 1 {
			facts = effective(ctx, v.loader, v.moves, sub, at-1)
		}
		last, err := v.try(ctx, sub, true, facts)
		if _, is := errors.AsType[*projector.FoldError](err); !is {
			return max(at, 1), err
		}
		if at <= 1 {
			return 0, fmt.Errorf("the rows of %s cannot be removed: %s", sub.Name(), err.Error())
		}
		at = min(at-1, last)
	}
}

func (v *ownView) noteShift(ctx context.Context, g *group) error {
	if g.shifted == nil || !*g.shifted {
		return nil
	}
	return v.put(context.WithoutCancel(ctx), shiftedTable, g.subject.Namespace, g.subject.Kind, g.subject.ID)
}

// Effective yields the facts of a subject that the view folds, as of an offset, 0 for now. If records are lost, a
// *projector.HoleError comes last.
func (v View) Effective(ctx context.Context, l *projector.Loader, sub events.Subject, upto events.Offset) iter.Seq2[projector.Fact, error] {
	return effective(ctx, l, v.moves(), sub, upto)
}

// moves returns the movement of each type.
func (v View) moves() map[string]string {
	moves := make(map[string]string)
	for _, t := range slices.Concat(v.types, v.older) {
		moves[t.Name] = t.Moves
	}
	return moves
}

func effective(ctx context.Context, l *projector.Loader, moves map[string]string, sub events.Subject, upto events.Offset) iter.Seq2[projector.Fact, error] {
	return func(yield func(projector.Fact, error) bool) {
		for f, err := range l.Effective(ctx, sub, upto, func(typ string) bool { return moves[typ] == events.WithThread }) {
			if _, isWanted := moves[f.Type]; err == nil && !isWanted {
				continue
			}
			f.Subject = sub // what a fork inherits is its own
			if !yield(f, err) {
				return
			}
		}
	}
}

func seqOf(facts []projector.Fact) iter.Seq2[projector.Fact, error] {
	return func(yield func(projector.Fact, error) bool) {
		for _, f := range facts {
			if !yield(f, nil) {
				return
			}
		}
	}
}

// try calls the fold in a savepoint, and returns the offset of the last fact that it got. An error of the fold is a
// *projector.FoldError, and leaves the tables unchanged. Any other error is one of the file or the log.
func (v *ownView) try(ctx context.Context, sub events.Subject, again bool, facts iter.Seq2[projector.Fact, error]) (last events.Offset, err error) {
	sql := context.WithoutCancel(ctx)
	isAlone := v.def.Once && !again
	if !isAlone {
		if err := v.step(sql, "SAVEPOINT fold"); err != nil {
			return 0, err
		}
	}
	if again {
		err = safely(func() error { return v.def.Forget(sql, v, sub) })
	}
	if err == nil {
		err = safely(func() error {
			return v.def.Fold(sql, v, sub, again, func(yield func(projector.Fact, error) bool) {
				for f, err := range facts {
					if err = projector.Tolerate(err); err == nil && f.Offset == 0 {
						return // the Runner has noted lost records
					}
					if err != nil {
						v.broken = err
					}
					last = f.Offset
					if !yield(f, err) {
						return
					}
				}
			})
		})
	}
	if v.broken != nil {
		return last, v.broken // the transaction ends
	}
	if err != nil && !isAlone {
		if err := v.step(sql, "ROLLBACK TO fold"); err != nil {
			return last, err
		}
	}
	if !isAlone {
		if err := v.step(sql, "RELEASE fold"); err != nil {
			return last, err
		}
	}
	if err != nil {
		return last, &projector.FoldError{Err: err}
	}
	return last, nil
}

// safely turns a panic of a program's function into an error.
func safely(do func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return do()
}

// step executes a prepared statement that has no table.
func (v *ownView) step(ctx context.Context, text string) error {
	st, err := v.prepare(ctx, text)
	if err == nil {
		_, err = st.ExecContext(ctx)
	}
	return err
}

// Exec implements Tables.
func (v *ownView) Exec(ctx context.Context, text string, args ...any) error {
	if err := v.allow(text, "INSERT", "UPDATE", "DELETE", "REPLACE", "WITH"); err != nil {
		return err
	}
	return v.note(v.run(ctx, text, args...))
}

// Find implements Tables.
func (v *ownView) Find(ctx context.Context, text string, args, into []any) (bool, error) {
	if err := v.allow(text, "SELECT", "WITH"); err != nil {
		return false, err
	}
	found, err := v.find(ctx, text, args, into)
	return found, v.note(err)
}

// SQLite's codes of errors of a statement, not of its file.
const (
	wrongStatement = 1
	tooBig         = 18
	constraint     = 19
	wrongType      = 20
	outOfRange     = 25
)

// note remembers an error of the file, which is not the fold's fault.
func (v *ownView) note(err error) error {
	if _, is := errors.AsType[*sqlite.Error](err); is && !isCode(err, wrongStatement, tooBig, constraint, wrongType, outOfRange) {
		v.broken = err
	}
	return err
}

// Close closes the file. The next writer folds uncommitted records again.
func (v *ownView) Close() error { return v.close() }
