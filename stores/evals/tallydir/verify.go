package tallydir

import (
	"context"
	"crypto/sha256"
	"errors"
	"hash"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/internal/sessiondir"
)

// streamBeyond is the size of a folder up to which the imported session is loaded
// to be compared with it. Larger ones are compared record by record.
const streamBeyond = 16 << 20

// differing lists the files whose bytes the session would not give back, and those
// that only one of both has. Runs that were never in a folder are the session's
// own. A session without threads is compared without what follows from them.
func (v view) differing(ctx context.Context, f *folder) ([]string, error) {
	var list []string
	found, stepsSame := 0, false
	for _, name := range v.paths() {
		have, ok, err := v.file(ctx, name)
		if err != nil {
			return nil, err
		}
		s := f.file(name)
		at := v.place(name).part
		switch {
		case v.s.Threads == nil && s != nil && (at == partTurns || at == partTraces):
			found++
		case !ok && s == nil:
		case s == nil && at == partRun && !have.Known:
		case !ok, s == nil:
			list = append(list, name)
		default:
			found++
			if at == partTraces && stepsSame && s.derives(have.Format) {
				continue // they follow from the steps, and the scan has seen that they do
			}
			same, err := v.same(ctx, have, f, s)
			if err != nil {
				return nil, err
			}
			if !same {
				list = append(list, name)
			}
			stepsSame = stepsSame || same && at == partTurns && s.exact()
		}
	}
	if len(list) == 0 && (found < len(f.files) || folderOf(v.s) != f.name()) {
		list = append(list, ".")
	}
	return list, nil
}

// derives reports whether a file follows from the steps by a format.
func (s *source) derives(by events.FileFormat) bool {
	want := s.Format
	want.Mode = s.Mode
	return want.Derived && want == by
}

// same reports whether a file of a folder comes out as it is.
func (v view) same(ctx context.Context, have sessiondir.Output, f *folder, s *source) (bool, error) {
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

// verify compares what the store has now with the folder. Of a new session that
// nobody else has written to it is known what that is: the events that were
// acknowledged. They are folded as they are at hand; to read them back would take as
// long as to store them.
func (im importer) verify(ctx context.Context, f *folder, p *plan) error {
	if p.recall && p.alone {
		recalled := sessiondir.Recall(im.Target, p.made)
		s, err := projector.Fold(ctx, p.s.Subject, p.made)
		if err != nil {
			return err
		}
		return im.reportDiffering(ctx, view{recalled, s}, f)
	}
	if p.fresh && f.size > streamBeyond {
		done, err := im.verifyStream(ctx, f)
		if done || err != nil {
			return err
		}
	}
	s, err := im.Load(ctx, f.ID)
	if err != nil {
		return err
	}
	return im.reportDiffering(ctx, view{im.Target, s}, f)
}

func (im importer) reportDiffering(ctx context.Context, v view, f *folder) error {
	list, err := v.differing(ctx, f)
	im.NotAsItIs(f.Dir, list)
	return err
}

// verifyStream folds the records of a new session without keeping its turns. done
// is false if something moved the threads otherwise than by appending: then only
// a load can tell.
func (im importer) verifyStream(ctx context.Context, f *folder) (done bool, err error) {
	sub := events.Session(im.Target.Namespace(), f.ID)
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
	src := im.Target.Loader().Source
	for rec, err := range src.Read(ctx, events.Range{Subject: sub}) {
		if err == nil {
			rec, err = projector.Resolve(ctx, src, rec, sessiondir.MaxValue(im.Target))
		}
		if err != nil {
			return false, err
		}
		if rec.Type == events.TypeSessionRewound || events.IsThread(rec.Type) && rec.Type != events.TypeTurnAppended {
			return false, nil
		}
		fact := projector.Decode(rec)
		s.Apply(fact)
		if p, ok := fact.Payload.(*events.TurnAppended); ok {
			for _, e := range p.Entries {
				if e.Thread != events.MainThread {
					return false, nil
				}
				step, err := rawjson.Object(e.Turn)
				if err := errors.Join(out.Turn(e.Turn, false), d.turn(step, err == nil)); err != nil {
					return false, err
				}
			}
		}
	}
	if err := errors.Join(out.End(), d.out.end()); err != nil {
		return false, err
	}
	if turns != nil {
		want, err := f.rendered(turns)
		if err != nil {
			return false, err
		}
		if sessiondir.HexSum(main) != want {
			im.Problem(turns.Full, 0, "the store has other turns than the file: it changed while it was imported")
		}
	}
	if same, err := f.isDerived(derived, traces); !same || err != nil {
		if err != nil {
			return false, err
		}
		im.Problem(derived.Full, 0, "does not follow from the turns in the store: it changed while it was imported")
	}
	if s.History.Len() == 0 {
		return false, nil
	}
	return true, im.reportDiffering(ctx, view{im.Target, s}, f)
}

// isDerived reports whether a hash is that of step traces that follow from the steps.
// Without such, or without any, there is nothing to say against it.
func (f *folder) isDerived(s *source, have hash.Hash) (bool, error) {
	if s == nil || !s.Format.Derived {
		return true, nil
	}
	want, err := f.sum(s)
	return sessiondir.HexSum(have) == want, err
}
