package perstack

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/perstack/internal/shape"
)

// Query selects jobs. Fields that are zero select all.
type Query struct {
	Status JobStatus
	Limit  int
}

// Jobs lists the jobs of the store, those that started last first; those that started in one
// millisecond by their id. What was never stored, or is not what the schema asks for, is
// left out.
//
// It reads one record of each job that it lists. A limit reads those that started last, in the
// order of the catalog; jobs of a status are looked for among ever more of them. Where there is
// no catalog, as on a server that others run, each job is opened first, about 1 ms.
func Jobs(ctx context.Context, st *tally.Store, q Query) ([]Job, error) {
	for most := q.Limit; ; most *= 4 {
		found, err := st.SessionList(ctx, projector.SessionQuery{Kind: events.KindJob, Stored: true, Newest: true, Limit: most})
		hole := err
		if projector.Tolerate(hole) != nil {
			return nil, hole
		}
		list, err := readJobs(ctx, st, found, q.Status)
		if err != nil {
			return nil, err
		}
		if q.Limit > 0 && len(list) > q.Limit {
			list = list[:q.Limit]
		}
		if len(list) == q.Limit || len(found) < most || most <= 0 {
			return list, hole
		}
	}
}

// readJobs reads the jobs that sessions are, those that started last first.
func readJobs(ctx context.Context, st *tally.Store, found []projector.Listed, status JobStatus) (list []Job, err error) {
	for _, s := range found {
		id, ok := shape.JobID(s.ID)
		if !ok {
			continue // of that kind, and somebody else's
		}
		raw, err := JobOf(st, id).versionAt(ctx, s.Raw)
		if err != nil {
			return nil, err
		}
		j, err := ParseJob(raw)
		if err != nil && !isMissing(err) {
			return nil, err
		}
		if err == nil && (status == "" || j.Status == status) {
			list = append(list, j)
		}
	}
	slices.SortStableFunc(list, func(a, b Job) int { return cmp.Compare(b.StartedAt, a.StartedAt) })
	return list, nil
}

// isMissing reports whether a document is not there, or is not what it should be.
func isMissing(err error) bool {
	_, invalid := errors.AsType[*events.InvalidError](err)
	return invalid || errors.Is(err, tally.ErrNotFound)
}

// Runs lists the settings of all runs of the store, those that changed last first. Secrets
// are in them if there is a key, else the placeholders that stand for them. It reads the
// record of each setting, and the document of its secrets; where there is no catalog, each
// job is opened first.
func Runs(ctx context.Context, st *tally.Store) ([]RunSetting, error) {
	found, err := st.SessionList(ctx, projector.SessionQuery{Kind: events.KindJob, Settings: true})
	hole := err
	if projector.Tolerate(hole) != nil {
		return nil, hole
	}
	var list []RunSetting
	for _, s := range found {
		id, ok := shape.JobID(s.ID)
		if !ok {
			continue
		}
		more, err := JobOf(st, id).settings(ctx, s.Settings)
		if err != nil {
			return nil, err
		}
		list = append(list, more...)
	}
	sortByUpdate(list)
	return list, hole
}

func sortByUpdate(list []RunSetting) {
	slices.SortStableFunc(list, func(a, b RunSetting) int { return cmp.Compare(b.UpdatedAt, a.UpdatedAt) })
}

// Settings lists the settings of the job's runs, as Runs does those of all.
func (h *Handle) Settings(ctx context.Context) ([]RunSetting, error) {
	o, err := h.head(ctx)
	if err != nil {
		return nil, err
	}
	list, err := h.settings(ctx, o.Ledger().Settings())
	sortByUpdate(list)
	return list, err
}

// settings reads the settings that a list has.
func (h *Handle) settings(ctx context.Context, found []projector.RunSetting) (list []RunSetting, err error) {
	for _, r := range found {
		if r.Run.Kind != shape.RunKind {
			continue
		}
		s, err := h.listed(ctx, r)
		if isMissing(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		list = append(list, s)
	}
	return list, nil
}

// listed is a setting as a list has it.
func (h *Handle) listed(ctx context.Context, r projector.RunSetting) (RunSetting, error) {
	raw, ref, err := h.settingAt(ctx, r.Offset)
	if err != nil {
		return RunSetting{}, err
	}
	if whole, err := h.unseal(ctx, r.Run.ID, raw, ref); err == nil {
		raw = whole
	} else if ctx.Err() != nil {
		return RunSetting{}, ctx.Err()
	}
	if raw, err = shape.SettingFile(raw, r.TouchedAt); err != nil {
		return RunSetting{}, err
	}
	return ParseRunSetting(raw)
}

// MostRecentRun returns the run of the store whose setting changed last. If there is none
// the error is a *NotFoundError.
func MostRecentRun(ctx context.Context, st *tally.Store) (RunSetting, error) {
	list, err := Runs(ctx, st)
	if err == nil && len(list) == 0 {
		err = notFound("No runs found")
	}
	if err != nil {
		return RunSetting{}, err
	}
	return list[0], nil
}

// MostRecentRun returns the run of the job whose setting changed last, as the function of
// that name does.
func (h *Handle) MostRecentRun(ctx context.Context) (RunSetting, error) {
	list, err := h.Settings(ctx)
	if err == nil && len(list) == 0 {
		err = notFound("No runs found for job %s", h.id)
	}
	if err != nil {
		return RunSetting{}, err
	}
	return list[0], nil
}

// MostRecentCheckpoint returns the checkpoint of the largest step, of several the one saved
// last. If there is none the error is a *NotFoundError.
func (h *Handle) MostRecentCheckpoint(ctx context.Context) (Checkpoint, error) {
	latest, err := h.latest(ctx)
	if err != nil {
		return Checkpoint{}, err
	}
	return h.Checkpoint(ctx, latest.ID)
}

// RecentExpert is an expert that was run.
type RecentExpert struct {
	Key      string
	LastUsed int64 // Unix milliseconds
}

// RecentExperts lists the experts of the runs of the store, each once, those used last
// first; at most limit, 0 for all.
func RecentExperts(ctx context.Context, st *tally.Store, limit int) ([]RecentExpert, error) {
	runs, err := Runs(ctx, st)
	if err != nil {
		return nil, err
	}
	seen := make(map[string]bool)
	var list []RecentExpert
	for _, r := range runs {
		if !seen[r.ExpertKey] && (limit <= 0 || len(list) < limit) {
			seen[r.ExpertKey] = true
			list = append(list, RecentExpert{r.ExpertKey, r.UpdatedAt})
		}
	}
	return list, nil
}

// EventRow is an event as the original's command lists it.
type EventRow struct {
	ID string // <timestamp>-<step>-<type>
	EventMeta
	RunID string
}

// EventRows lists the events of a run, or of all runs of the job (""), by their time.
func (h *Handle) EventRows(ctx context.Context, run string) ([]EventRow, error) {
	x := &h.index
	x.mu.Lock()
	defer x.mu.Unlock()
	if err := x.catchUp(ctx, h); err != nil {
		return nil, err
	}
	var rows []EventRow
	for id, list := range x.byRun {
		for _, m := range list {
			if run == "" || run == id {
				rows = append(rows, EventRow{fmt.Sprintf("%d-%d-%s", m.Timestamp, m.StepNumber, m.Type), m, id})
			}
		}
	}
	slices.SortFunc(rows, func(a, b EventRow) int {
		return cmp.Or(cmp.Compare(a.Timestamp, b.Timestamp), cmp.Compare(a.Offset, b.Offset))
	})
	return rows, nil
}
