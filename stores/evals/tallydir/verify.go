package tallydir

import (
	"context"
	"crypto/sha256"
	"errors"
	"hash"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/internal/sessiondir"
)

// streamBeyond is the maximal size of a folder whose imported session is loaded for the comparison. Larger ones are
// compared record by record.
const streamBeyond = 16 << 20

// Same implements sessiondir.Found. A run that was never in a folder is no difference. If the session's threads are
// not loaded, the files that depend on them count as equal.
func (f *folder) Same(ctx context.Context, v *view, name string) (bool, error) {
	have, ok, err := v.File(ctx, name)
	if err != nil {
		return false, err
	}
	s, at := f.file(name), v.role(name).part
	switch {
	case v.s.Threads == nil && s != nil && (at == partTurns || at == partTraces):
		return true, nil
	case s == nil:
		return !ok || at == partRun && !have.Known, nil
	case !ok:
		return false, nil
	case at == partTraces && f.stepsSame && s.derives(have.Format):
		return true, nil // they depend on the steps, and the scan has compared them
	}
	same, err := v.same(ctx, have, f, s)
	if at == partTurns {
		f.stepsSame = same && s.exact()
	}
	return same, err
}

// derives reports whether a file is computed from the steps in a format.
func (s *source) derives(by events.FileFormat) bool {
	want := s.Format
	want.Mode = s.Mode
	return want.Derived && want == by
}

// same reports whether a file of a folder would be exported with the same bytes.
func (v *view) same(ctx context.Context, have sessiondir.Output, f *folder, s *source) (bool, error) {
	if have.Format.Mode != s.Mode {
		return false, nil
	}
	if s.Data != nil && !have.Whole {
		m := &matcher{rest: s.Data}
		err := have.Write(ctx, m)
		return err == nil && m.matched(), err
	}
	want, err := f.sum(s)
	if err != nil {
		return false, err
	}
	return have.Holds(ctx, want)
}

// Recall implements sessiondir.Recaller. If a new session has no other writer, its state follows from the
// acknowledged events. Recall folds them from memory, because reading them back would take as long as storing them.
func (p *plan) Recall(ctx context.Context) (v *view, known bool, err error) {
	if p.recall && p.alone {
		recalled := layouts.Recall(p.f.In.Target, p.made) // sets their offsets
		s, err := projector.Fold(ctx, p.s.Subject, p.made)
		return &view{recalled, s}, true, err
	}
	if p.fresh && p.f.size > streamBeyond {
		return p.f.streamed(ctx)
	}
	return nil, false, nil
}

// streamed folds the records of a new session without keeping its turns, and compares the turns as they arrive. If
// the threads were changed other than by appends, known is false, because only a load has the result.
func (f *folder) streamed(ctx context.Context) (v *view, known bool, err error) {
	target := f.In.Target
	sub := events.Session(target.Namespace(), f.ID)
	turns, derived := f.file(turnsName), f.file(tracesName)
	main, traces := sha256.New(), sha256.New()
	out := sessiondir.LinesWriter{W: main}
	d := deriver{out: arrayWriter{w: traces}}
	if turns != nil {
		out.Format = turns.Format
	}
	if derived != nil {
		d.out.format = derived.Format
	}
	s := projector.NewSession(sub)
	s.Threads = nil
	src := target.Loader().Source
	for rec, err := range src.Read(ctx, events.Range{Subject: sub}) {
		if err == nil {
			rec, err = projector.Resolve(ctx, src, rec, sessiondir.MaxValue(target))
		}
		if err != nil {
			return nil, false, err
		}
		if rec.Type == events.TypeSessionRewound || events.IsThread(rec.Type) && rec.Type != events.TypeTurnAppended {
			return nil, false, nil
		}
		fact := projector.Decode(rec)
		s.Apply(fact)
		if p, ok := fact.Payload.(*events.TurnAppended); ok {
			for _, e := range p.Entries {
				if e.Thread != events.MainThread {
					return nil, false, nil
				}
				step, err := rawjson.Object(e.Turn)
				if err := errors.Join(out.Turn(e.Turn, false), d.turn(step, err == nil)); err != nil {
					return nil, false, err
				}
			}
		}
	}
	if err := errors.Join(out.End(), d.out.end()); err != nil {
		return nil, false, err
	}
	if turns != nil {
		want, err := f.rendered(turns)
		if err != nil {
			return nil, false, err
		}
		if sessiondir.HexSum(main) != want {
			f.In.Problem(turns.Full, 0, "the turns in the store differ from the file: it changed during the import")
		}
	}
	if same, err := f.isDerived(derived, traces); !same || err != nil {
		if err != nil {
			return nil, false, err
		}
		f.In.Problem(derived.Full, 0, "does not follow from the turns in the store: it changed during the import")
	}
	if s.History.Len() == 0 {
		return nil, false, nil
	}
	return &view{target, s}, true, nil
}

// isDerived reports whether a hash equals that of the computed step traces. Without a file of computed traces it
// returns true.
func (f *folder) isDerived(s *source, have hash.Hash) (bool, error) {
	if s == nil || !s.Format.Derived {
		return true, nil
	}
	want, err := f.sum(s)
	return sessiondir.HexSum(have) == want, err
}
