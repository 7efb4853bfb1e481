package admin

import (
	"context"
	"fmt"
	"path"
	"slices"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/cmd/internal/cli"
	"github.com/tallylog/tally/cmd/internal/cmdutil"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/projector"
)

// ownFormat returns the format of a session's origin: the layout of its import, or the files of its agent. Without
// either, it returns the first layout that writes sessions of its kind, or "".
func ownFormat(ctx context.Context, st *tally.Store, s *projector.Session) (string, error) {
	if o := s.Ledger.Origin(); o != nil {
		if _, ok := cmdutil.LayoutNamed(o.Format); ok {
			return o.Format, nil
		}
	}
	for _, a := range cmdutil.Agents {
		if picks, err := (agentForm{a, st.Log}).Picks(ctx, s); picks || err != nil {
			return a.Format(), err
		}
	}
	for _, l := range cmdutil.Layouts {
		if writes, err := layouts.Writes(ctx, l.Layout, s); writes || err != nil {
			return l.Name(), err
		}
	}
	return "", nil
}

// choose sets the format to that of the session's origin, unless --format was given.
func (x *exporter) choose(ctx context.Context, st *tally.Store, s *projector.Session) (err error) {
	if x.format != "" {
		return nil
	}
	if x.format, err = ownFormat(ctx, st, s); err == nil && x.format == "" {
		err = &cli.CodeError{Code: cli.Partial, Err: fmt.Errorf("nothing was written: no format writes %s, a session of kind %s", cli.ID(s.Subject.ID), s.Ledger.Kind),
			Hint: "--format html or markdown writes a page."}
	}
	return err
}

// exportAll exports every session, in the format of --format or else in the format of its origin. If there are several
// formats, each gets a folder.
func (x *exporter) exportAll(ctx context.Context, st *tally.Store, o layouts.ExportOptions) error {
	if x.format != "" {
		return x.export(ctx, st, o)
	}
	list, without, err := x.ownFormats(ctx, st)
	if err != nil {
		return err
	}
	var total layouts.Report
	for _, id := range without {
		total.Refused = append(total.Refused, id)
		total.Problems = append(total.Problems, layouts.Problem{File: layouts.FileName(id), Reason: "nothing was written: no format writes it; --format html or markdown writes a page"})
	}
	for _, format := range list {
		each := *x
		each.format = format
		prefix := ""
		if len(list) > 1 {
			prefix = format
			each.dir = path.Join(x.dir, format)
		}
		report, err := each.write(ctx, st, o)
		total.Add(within(report, prefix))
		if err != nil {
			return err
		}
	}
	return x.conclude(ctx, st, total)
}

// within prefixes the files of a report with a folder.
func within(r layouts.Report, folder string) layouts.Report {
	for _, list := range [][]layouts.Problem{r.Problems, r.Notes} {
		for i := range list {
			list[i].File = path.Join(folder, list[i].File)
		}
	}
	return r
}

// ownFormats returns the formats of all sessions and documents, and the sessions that no format can write. The export
// itself reports damaged sessions.
func (x *exporter) ownFormats(ctx context.Context, st *tally.Store) (list, without []string, err error) {
	for info, err := range x.source(st).Subjects(ctx, events.KindSession) {
		if err != nil {
			return nil, nil, err
		}
		s, err := st.Loader().Session(ctx, info.Subject, 0)
		if ctx.Err() != nil {
			return nil, nil, ctx.Err()
		}
		format := cmdutil.Layouts[0].Name()
		if err == nil {
			format, err = ownFormat(ctx, st, s)
		}
		switch {
		case err == nil && format == "":
			without = append(without, info.Subject.ID)
		case !slices.Contains(list, format):
			list = append(list, format)
		}
	}
	for _, l := range cmdutil.Layouts { // a layout may have files of documents only
		r, ok := l.Layout.(layouts.Rooted)
		if !ok || slices.Contains(list, l.Name()) {
			continue
		}
		has, err := r.HasFiles(ctx, x.source(st))
		if err != nil {
			return nil, nil, err
		}
		if has {
			list = append(list, l.Name())
		}
	}
	slices.Sort(list)
	return list, without, nil
}
