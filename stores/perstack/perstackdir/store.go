package perstackdir

import (
	"context"
	"errors"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/internal/sealed"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/internal/sessiondir"
	"github.com/tallylog/tally/stores/perstack/internal/shape"
)

const rootName = "perstack"

// store is the layout's implementation of jobs.
type store struct {
	sessiondir.Defaults
	keys keyring
}

// Stamp implements sessiondir.Store.
func (store) Stamp() sessiondir.Stamp { return stamp }

// Shape implements sessiondir.Store.
func (store) Shape() sessiondir.Shape {
	return sessiondir.Shape{
		Layout: Format, Sessions: jobsName, Inside: rootName, Usual: rootName, Kind: events.KindJob,
		IsRoot:     looksLikeRoot,
		HasSession: looksLikeJob,
		Nothing:    "holds no perstack/jobs",
	}
}

func looksLikeRoot(dir string) bool {
	return sessiondir.Shape{HasSession: looksLikeJob}.HoldsSession(filepath.Join(dir, jobsName))
}

// looksLikeJob reports whether a folder has a file that only a job has. The runtime writes neither job.json nor
// run-setting.json, and other programs may have a job.json.
func looksLikeJob(dir string) bool {
	return sessiondir.IsFile(filepath.Join(dir, jobName)) && isJob(filepath.Join(dir, jobName)) ||
		holds(filepath.Join(dir, checkpointsName), func(name string) bool { return strings.HasSuffix(name, suffix) }) ||
		holdsRun(filepath.Join(dir, runsName))
}

func holdsRun(dir string) bool {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return false
	}
	for _, e := range entries {
		if e.IsDir() && holds(filepath.Join(dir, e.Name()), func(name string) bool { return locate(runsName+"/r/"+name).part != partOther }) {
			return true
		}
	}
	return false
}

// holds reports whether a folder has a file whose name is accepted.
func holds(dir string, is func(name string) bool) bool {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return false
	}
	for _, e := range entries {
		if is(e.Name()) && e.Type().IsRegular() {
			return true
		}
	}
	return false
}

// isJob reports whether a file has members of a job, even if it is cut off.
func isJob(name string) bool {
	f, err := os.Open(name)
	if err != nil {
		return false
	}
	defer f.Close()
	head := make([]byte, 4<<10)
	n, _ := f.Read(head)
	return strings.Contains(string(head[:n]), `"coordinatorExpertKey"`) || strings.Contains(string(head[:n]), `"totalSteps"`)
}

// Exports implements sessiondir.Store: jobs that were not imported.
func (store) Exports(kind string) bool { return kind == events.KindJob }

// Document implements sessiondir.Store.
func (store) Document(ns, root, name string) events.Subject { return documentOf(ns, root, name) }

// View implements sessiondir.Store.
func (st store) View(src layouts.Source, s *projector.Session) view { return newView(src, s, st.keys) }

// Begin implements sessiondir.Store. An import runs without keys, and refuses keys that cannot be read.
func (st store) Begin(in *sessiondir.Intake) (store, error) {
	if err := st.keys.err; err != nil && !errors.Is(err, sealed.ErrNoKey) && !in.Options.NoSecrets {
		return st, err
	}
	return st, nil
}

// Entries implements sessiondir.Store.
func (store) Entries(in *sessiondir.Intake, dir string) ([]sessiondir.Entry, error) {
	list, err := in.Entries(dir)
	if err != nil {
		return nil, err
	}
	return distinct(in, list), nil
}

// Named implements sessiondir.Store.
func (store) Named(ctx context.Context, src layouts.Source, dir string) (events.Subject, bool) {
	if id, ok := layouts.ParseFileName(dir); ok {
		return events.Session(src.Namespace(), shape.SessionID(id)), true
	}
	return sessiondir.FindSession(ctx, src, func(id string) bool {
		id, ok := shape.JobID(id)
		return ok && isNameOf(dir, id)
	})
}

// At implements sessiondir.Store. The folder of a job may have a name that does not follow from its id. A file that may
// hold secrets cannot be beside the jobs.
func (store) At(ctx context.Context, src layouts.Source, name string, sub events.Subject) (events.Subject, bool) {
	if !sub.IsSession() {
		return sub, !isPrivate(name)
	}
	dir := strings.Split(name, "/")[1]
	for _, id := range []string{dir, sessiondir.KeyOf(dir)} {
		other := events.Session(src.Namespace(), shape.SessionID(id))
		o, err := src.Loader().Outline(ctx, other, 0)
		if err == nil && dirOf(&projector.Session{Subject: other, Ledger: o.Ledger()}) == jobsName+"/"+dir {
			return other, true
		}
	}
	return sub, true
}

// Takes implements sessiondir.Store.
func (store) Takes(_ context.Context, in *sessiondir.Intake, full string) (bool, error) {
	if isPrivate(full) {
		in.Problem(full, 0, "it may hold secrets, and is not in the folder of a job: not imported")
		return true, nil
	}
	return false, nil
}

// Birth implements sessiondir.Store. It reads job.json.
func (st store) Birth(in *sessiondir.Intake, at sessiondir.Entry) string {
	jf := newJobFolder(in.Folder(at), st.keys)
	f, err := in.Tree.File(path.Join(at.Dir, jobName))
	if err != nil {
		return ""
	}
	f.Path = jobName
	data, err := jf.read(f)
	if err != nil || data == nil {
		return ""
	}
	v := &value{File: f, location: locate(jobName)}
	if v.take(jf, data) != nil {
		return ""
	}
	return jf.birth
}

// List implements sessiondir.Store.
func (st store) List(_ context.Context, at sessiondir.Folder) (*jobFolder, error) {
	jf := newJobFolder(at, st.keys)
	return jf, jf.list("")
}
