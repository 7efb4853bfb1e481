package perstackdir

import (
	"context"
	"fmt"
	"path"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/stores/internal/sessiondir"
	"github.com/tallylog/tally/stores/perstack/internal/shape"
)

// unit is the folder of a job, as the importer found it.
type unit struct {
	sessiondir.Folder
	keys keyring

	job     string // its id
	key     string // the name of its folder, where that is not made of the id; else ""
	values  []*value
	files   map[string]*sessiondir.File // by path
	byFile  map[*sessiondir.File]*value // what goes into the session
	out     map[string]bool             // files, and folders with a slash behind them, that are not looked at: they stay as the store has them
	notes   []string                    // paths of files that the original does not know
	birth   string                      // what the job says of its beginning
	created events.Timestamp            // best knowledge of the beginning
}

// newUnit returns a unit of which nothing was looked at yet.
func newUnit(at sessiondir.Folder, keys keyring) *unit {
	u := &unit{Folder: at, keys: keys, files: make(map[string]*sessiondir.File), byFile: make(map[*sessiondir.File]*value), out: make(map[string]bool)}
	u.job, _ = shape.JobID(at.ID)
	if name := path.Base(u.Dir); layouts.FileName(u.job) != name {
		u.key = sessiondir.KeyOf(name)
	}
	return u
}

// file returns the file of a path, nil if the unit has none.
func (u *unit) file(name string) *sessiondir.File { return u.files[name] }

// of returns the value of a part, nil if there is none or nothing could be read from it.
func (u *unit) of(p part) *value {
	for _, v := range u.values {
		if v.part == p && v.Value && !u.Leaves(v.Path) {
			return v
		}
	}
	return nil
}

// Status implements sessiondir.Found.
func (u *unit) Status() events.Raw {
	w := u.of(partJob)
	if w == nil {
		return nil
	}
	raw, _ := w.job.Fields().Get("status")
	return raw
}

// setting returns that of a run, nil if there is none.
func (u *unit) setting(run string) *value {
	for _, v := range u.values { // they come first
		if v.part == partSetting && v.run == run {
			return v
		}
		if rank(v) > 1 {
			break
		}
	}
	return nil
}

// Birth implements sessiondir.Found.
func (u *unit) Birth() string { return u.birth }

// Leaves implements sessiondir.Found.
func (u *unit) Leaves(name string) bool {
	if u.out[name] {
		return true
	}
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		if u.out[dir+"/"] {
			return true
		}
	}
	return false
}

// isSecretive reports whether a file that is kept whole is to be sealed.
func (u *unit) isSecretive(f *sessiondir.File) bool {
	v := u.byFile[f]
	return isPrivate(f.Path) && (v == nil || len(v.setting.values)+len(v.setting.suspects) > 0)
}

// begin settles when the job began, by the best witness there is: the job, the first event,
// the age of the files.
func (u *unit) begin() error {
	for _, v := range u.values {
		if u.created == "" && v.part == partEvent {
			u.created = stampOf(v.at)
		}
	}
	if u.created != "" || len(u.Files) == 0 {
		return nil
	}
	var err error
	u.created, err = u.Oldest()
	return err
}

const maxNotes = 20 // listed for one job

// Finish implements sessiondir.Found.
func (u *unit) Finish() {
	for i, name := range u.notes {
		reason := "is not a file of the original's: kept as it is"
		switch {
		case i == maxNotes:
			name, reason = "", fmt.Sprintf("and %d more such files", len(u.notes)-maxNotes)
		case i > maxNotes:
			return
		case isVariant(name):
			reason = "is a checkpoint where the original does not look for one: kept as it is, nothing is taken from it"
		}
		u.In.Report.Notes = append(u.In.Report.Notes, layouts.Problem{File: path.Join(u.Dir, name), Reason: reason})
	}
}

// Same implements sessiondir.Found.
func (u *unit) Same(ctx context.Context, v view, name string) (bool, error) {
	o, ok, err := v.File(ctx, name)
	f := u.file(name)
	if err != nil || !ok || f == nil {
		return !ok && f == nil && !o.Moved, err
	}
	if o.Format.Mode != f.Mode || o.Moved {
		return false, nil
	}
	st := v.known.files[name]
	if !o.Whole && st.part != partSetting {
		return st.sum == f.Sum, nil
	}
	same, err := o.Holds(ctx, f.Sum)
	if w := u.byFile[f]; err == nil && !same && !o.Whole && w != nil && u.In.Options.NoSecrets {
		same = st.value == w.setting.sum() // what is left out is not compared
	}
	return same, err
}
