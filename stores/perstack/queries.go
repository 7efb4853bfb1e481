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

// Query selects jobs. Zero fields select all.
type Query struct {
	Status JobStatus
	Limit  int
}

// Jobs lists the jobs of the store, the last started first, and within a millisecond by id. It skips jobs that were
// never stored or violate the schema.
//
// It reads one record of each listed job. With a limit it reads the last started ones, in the order of the catalog;
// with a status it enlarges its search until it has enough. Without a catalog, as on a server that others run, it opens
// each job first, about 1 ms each.
func Jobs(ctx context.Context, st *tally.Store, q Query) ([]Job, error) {
	for limit := q.Limit; ; limit *= 4 {
		found, err := st.SessionList(ctx, projector.SessionQuery{Kind: events.KindJob, Stored: true, Newest: true, Limit: limit})
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
		if len(list) == q.Limit || len(found) < limit || limit <= 0 {
			return list, hole
		}
	}
}

// readJobs reads the jobs of sessions, the last started first.
func readJobs(ctx context.Context, st *tally.Store, found []projector.Listed, status JobStatus) (list []Job, err error) {
	for _, s := range found {
		id, ok := shape.JobID(s.ID)
		if !ok {
			continue // another program's session of that kind
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

// isMissing reports whether a document is missing or invalid.
func isMissing(err error) bool {
	_, invalid := errors.AsType[*events.InvalidError](err)
	return invalid || errors.Is(err, tally.ErrNotFound)
}

// Runs lists the settings of all runs of the store, the last changed first. They have their secrets if there is a key,
// and else placeholders. It reads the record of each setting and the document of its secrets. Without a catalog it
// opens each job first.
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

// Settings lists the settings of the job's runs, as Runs does for the store.
func (h *Handle) Settings(ctx context.Context) ([]RunSetting, error) {
	o, err := h.head(ctx)
	if err != nil {
		return nil, err
	}
	list, err := h.settings(ctx, o.Ledger().Settings())
	sortByUpdate(list)
	return list, err
}

// settings reads the settings of a list.
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

// listed returns a setting for a list.
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

// MostRecentRun returns the run of the store whose setting changed last. If there are no runs, the error is a
// *NotFoundError.
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

// MostRecentRun returns the run of the job whose setting changed last, as the function does for the store.
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

// MostRecentCheckpoint returns the checkpoint with the largest step, the last saved of several. If there are no
// checkpoints, the error is a *NotFoundError.
func (h *Handle) MostRecentCheckpoint(ctx context.Context) (Checkpoint, error) {
	latest, err := h.latest(ctx)
	if err != nil {
		return Checkpoint{}, err
	}
	return h.Checkpoint(ctx, latest.ID)
}

// RecentExpert is an expert that was used by a run.
type RecentExpert struct {
	Key      string
	LastUsed int64 // Unix milliseconds
}

// RecentExperts lists the experts of the store's runs, each once, the last used first; at most limit, 0 for all.
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

// EventRows lists the events of a run, or with "" of all runs of the job, sorted by time.
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
