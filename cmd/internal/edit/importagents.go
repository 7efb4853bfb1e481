package edit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"sync"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/cmd/internal/cli"
	"github.com/tallylog/tally/cmd/internal/cmdutil"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/agents"
	"github.com/tallylog/tally/internal/ingest"
	"github.com/tallylog/tally/internal/ingest/redact"
	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/internal/render/plain"
	"github.com/tallylog/tally/log"
)

// agentsMeant returns the agents to look for, nil for all. It returns false if --format names a layout.
func (i *importer) agentsMeant() (list []agents.Agent, ok bool) {
	if i.format == "" {
		return nil, true
	}
	a, ok := cmdutil.AgentNamed(i.format)
	return []agents.Agent{a}, ok
}

// agentFiles returns the files of agents in a path.
func (i *importer) agentFiles(from string) (cmdutil.AgentSurvey, bool) {
	list, ok := i.agentsMeant()
	if !ok {
		return cmdutil.AgentSurvey{}, false
	}
	found := cmdutil.SurveyAgentFiles(from, os.Getenv, list...)
	return found, len(found.Files) > 0
}

// named replaces the name of an agent by the folders of its sessions, unless a file has that name.
func (i *importer) named(paths []string) (list []string, err error) {
	for _, p := range paths {
		a, ok := cmdutil.AgentNamed(p)
		if _, err := os.Lstat(p); !ok || err == nil {
			list = append(list, p)
			continue
		}
		found := len(list)
		for _, root := range a.Roots(os.Getenv) {
			if info, err := os.Stat(root); err == nil && info.IsDir() {
				list = append(list, filepath.FromSlash(root))
			}
		}
		if found == len(list) {
			return nil, &cli.CodeError{Code: cli.NotFound, Err: fmt.Errorf("%s has no sessions on this machine: they would be in %s", p, cmdutil.Or(a.Roots(os.Getenv)))}
		}
	}
	return list, nil
}

// agents imports the files of each agent in turn. Files of unknown agents and files that were not looked at are
// problems.
func (i *importer) agents(ctx context.Context, st *tally.Store, from string, found cmdutil.AgentSurvey, before layouts.Report, progress *cli.Progress) (layouts.Report, error) {
	total := layouts.Report{Dir: found.Files[0].Root}
	if info, err := os.Stat(from); err == nil && (len(found.Files) > 1 || !info.IsDir()) {
		if total.Dir, _ = filepath.Abs(from); !info.IsDir() {
			total.Dir = filepath.Dir(total.Dir)
		}
	}
	unknown := "its lines are not of a known agent: not read"
	if i.format != "" {
		unknown = "its lines are not of the format " + i.format + ": not read"
	}
	for _, files := range found.Files {
		report, err := i.agent(ctx, st, files, before, progress)
		dir := report.Dir
		report.Dir = total.Dir
		for _, list := range [][]layouts.Problem{report.Problems, report.Notes} {
			for n := range list {
				list[n].File = relative(total.Dir, filepath.Join(dir, filepath.FromSlash(list[n].File)))
			}
		}
		total.Add(report)
		before.Add(report)
		if err != nil {
			return total, err
		}
	}
	for _, name := range found.Others {
		total.Problems = append(total.Problems, layouts.Problem{File: relative(total.Dir, name), Reason: unknown})
	}
	for _, name := range found.Links {
		total.Problems = append(total.Problems, layouts.Problem{File: relative(total.Dir, name), Reason: cmdutil.LinkReason(name)})
	}
	if found.IsCut {
		total.Problems = append(total.Problems, layouts.Problem{File: ".", Reason: "has too many files or folders to look at: import its folders one by one"})
	}
	return total, nil
}

// relative returns a path relative to a folder, with slashes, if it is below the folder.
func relative(dir, file string) string {
	if name, err := filepath.Rel(dir, file); err == nil && filepath.IsLocal(name) {
		file = name
	}
	return filepath.ToSlash(file)
}

// agent imports files of an agent.
func (i *importer) agent(ctx context.Context, st *tally.Store, files cmdutil.AgentFiles, before layouts.Report, progress *cli.Progress) (layouts.Report, error) {
	report := layouts.Report{Dir: files.Root}
	met := &meeting{Agent: files.Only(), sessions: make(map[string]bool)}
	target := ingest.Log(st.Log)
	if i.dryRun {
		target = dryRunLog{layouts.NewDryRun(st), st.Log}
	}
	kept := &journal{Log: target, agent: files.Agent, touched: make(map[string]bool), added: make(map[string]bool), redacted: make(map[events.Subject]bool)}
	o := ingest.Options{Log: kept, Namespace: st.Namespace(), Sources: []ingest.Source{{Agent: met, Root: files.Root}}, Once: true}
	o.Sessions = func(ctx context.Context) iter.Seq2[string, error] { return cmdutil.SessionIDs(ctx, st, st.Namespace()) }
	if i.redact == on {
		r, err := redact.New(redact.Options{})
		if err != nil {
			return report, err
		}
		o.Redactor = r
	}
	o.Report = func(p ingest.Problem) {
		if p.Taken {
			report.Notes = append(report.Notes, layouts.Problem{File: p.File, Reason: reasonOf(p)})
			return
		}
		report.Problems = append(report.Problems, layouts.Problem{File: p.File, Reason: reasonOf(p)})
	}
	in, err := ingest.New(o)
	if err != nil {
		return report, err
	}
	kept.tell = func() {
		s := in.Status()
		n := met.count()
		progress.At(int64(n), int64(s.Files), fmt.Sprintf("%s, %s, %s", plain.Count(before.Sessions+n, "session"),
			plain.Count(before.Events+s.Events, "event"), plain.Bytes(before.Bytes+s.Bytes)))
	}
	err = errors.Join(in.Run(ctx), in.Close())
	if errors.Is(err, ingest.ErrStuck) {
		err = nil // each error is in the problems
	}
	if kept.unshown != nil {
		report.Problems = append(report.Problems, layouts.Problem{Reason: kept.unshown.Error()})
	}
	s := in.Status()
	for _, u := range s.Unreadable {
		report.Problems = append(report.Problems, layouts.Problem{File: u.Rel, Reason: u.Reason})
	}
	maps.Copy(met.sessions, kept.touched)
	report.Sessions, report.Added, report.Events, report.Bytes = len(met.sessions), len(kept.added), s.Events, s.Bytes
	report.Changed = len(kept.touched) - report.Added
	report.Unchanged = report.Sessions - report.Added - report.Changed
	i.lines += s.Lines
	i.redacted += s.Redacted
	if err == nil && i.redact != on {
		err = kept.name(ctx, met, &report)
	}
	return report, err
}

// reasonOf returns the text of a problem with its position in the file.
func reasonOf(p ingest.Problem) string {
	if p.Offset > 0 && p.File != "" {
		return fmt.Sprintf("byte %d: %s", p.Offset, p.Reason)
	}
	if p.File == "" {
		return p.Session + ": " + p.Reason
	}
	return p.Reason
}

// meeting is an agent with some of its files. It records their sessions.
type meeting struct {
	agents.Agent
	mu       sync.Mutex // guards sessions, since several files are read at once
	sessions map[string]bool
}

// Unwrap implements agents.Wrapper.
func (m *meeting) Unwrap() agents.Agent { return m.Agent }

// Fold implements agents.Agent. It records the session of the file, which is known by then.
func (m *meeting) Fold(f agents.File) agents.Fold {
	if m.Wants(f.Name) {
		m.mu.Lock()
		m.sessions[f.Session] = true
		m.mu.Unlock()
	}
	return m.Agent.Fold(f)
}

// count returns the number of sessions.
func (m *meeting) count() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.sessions)
}

// journal is a log that records the sessions it appends to, and the redacted records that it reads.
type journal struct {
	ingest.Log
	agent    agents.Agent
	mu       sync.Mutex      // guards the fields below, since several sessions are read at once
	touched  map[string]bool // ids of sessions
	added    map[string]bool // ids of new sessions
	redacted map[events.Subject]bool
	unshown  error // error of a tree that does not show all added records
	tell     func()
}

// AppendSeries implements ingest.Log.
func (j *journal) AppendSeries(ctx context.Context, sub events.Subject, expect log.Expect, evs ...events.Event) (log.Ack, int, error) {
	ack, n, err := j.Log.AppendSeries(ctx, sub, expect, evs...)
	j.mu.Lock()
	defer j.mu.Unlock()
	if n > 0 {
		j.touched[sub.ID] = true
		if expect == log.At(0) {
			j.added[sub.ID] = true
		}
	}
	j.tell()
	if err != nil && events.IsStored(err) {
		j.unshown, err = err, nil
	}
	return ack, n, err
}

// Read implements ingest.Log.
func (j *journal) Read(ctx context.Context, r events.Range) iter.Seq2[events.Record, error] {
	return func(yield func(events.Record, error) bool) {
		for rec, err := range j.Log.Read(ctx, r) {
			if err == nil && ingest.IsRedacted(rec) {
				j.mu.Lock()
				j.redacted[rec.Subject] = true
				j.mu.Unlock()
			}
			if !yield(rec, err) {
				return
			}
		}
	}
}

// name reports the imported files with redacted lines in the log: an export differs from the file.
func (j *journal) name(ctx context.Context, met *meeting, report *layouts.Report) error {
	for _, sub := range slices.SortedFunc(maps.Keys(j.redacted), func(a, b events.Subject) int { return cmp.Compare(a.ID, b.ID) }) {
		list, err := ingest.Files(ctx, j.Log, j.agent, sub)
		if err != nil {
			return err
		}
		for _, f := range list {
			if f.Redacted > 0 && met.Wants(f.Name) {
				report.Problems = append(report.Problems, layouts.Problem{File: path.Clean(f.Name), Reason: plain.Count(f.Redacted, "line") + " had been stored redacted before: the secrets stay removed"})
			}
		}
	}
	return nil
}
