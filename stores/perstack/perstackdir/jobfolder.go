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

// jobFolder is the folder of a job in an import.
type jobFolder struct {
	sessiondir.Folder
	keys keyring

	job     string // its id
	key     string // the folder's name, if it does not follow from the id, or ""
	values  []*value
	files   map[string]*sessiondir.File // by path
	byFile  map[*sessiondir.File]*value // values that go into the session
	out     map[string]bool             // files, and folders with a trailing slash, that are not imported: the store's versions stay
	notes   []string                    // paths of unknown files
	birth   string                      // the job's beginning, as in job.json
	created events.Timestamp            // best estimate of the beginning
}

// newJobFolder returns a folder that was not scanned yet.
func newJobFolder(at sessiondir.Folder, keys keyring) *jobFolder {
	jf := &jobFolder{Folder: at, keys: keys, files: make(map[string]*sessiondir.File), byFile: make(map[*sessiondir.File]*value), out: make(map[string]bool)}
	jf.job, _ = shape.JobID(at.ID)
	if name := path.Base(jf.Dir); layouts.FileName(jf.job) != name {
		jf.key = sessiondir.KeyOf(name)
	}
	return jf
}

// file returns the file at a path, or nil.
func (jf *jobFolder) file(name string) *sessiondir.File { return jf.files[name] }

// of returns the value of a part, or nil if it is missing or unreadable.
func (jf *jobFolder) of(p part) *value {
	for _, v := range jf.values {
		if v.part == p && v.Value && !jf.Leaves(v.Path) {
			return v
		}
	}
	return nil
}

// Status implements sessiondir.Found.
func (jf *jobFolder) Status() events.Raw {
	w := jf.of(partJob)
	if w == nil {
		return nil
	}
	raw, _ := w.job.Fields().Get("status")
	return raw
}

// setting returns the setting of a run, or nil.
func (jf *jobFolder) setting(run string) *value {
	for _, v := range jf.values { // settings come first
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
func (jf *jobFolder) Birth() string { return jf.birth }

// Leaves implements sessiondir.Found.
func (jf *jobFolder) Leaves(name string) bool {
	if jf.out[name] {
		return true
	}
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		if jf.out[dir+"/"] {
			return true
		}
	}
	return false
}

// isSecretive reports whether a kept file must be sealed.
func (jf *jobFolder) isSecretive(f *sessiondir.File) bool {
	v := jf.byFile[f]
	return isPrivate(f.Path) && (v == nil || len(v.setting.values)+len(v.setting.suspects) > 0)
}

// begin determines when the job began: by the job, or else the first event, or else the age of the files.
func (jf *jobFolder) begin() error {
	for _, v := range jf.values {
		if jf.created == "" && v.part == partEvent {
			jf.created = stampOf(v.at)
		}
	}
	if jf.created != "" || len(jf.Files) == 0 {
		return nil
	}
	var err error
	jf.created, err = jf.Oldest()
	return err
}

const maxNotes = 20 // listed for one job

// Finish implements sessiondir.Found.
func (jf *jobFolder) Finish() {
	for i, name := range jf.notes {
		reason := "is not a file of the original's: kept as it is"
		switch {
		case i == maxNotes:
			name, reason = "", fmt.Sprintf("and %d more such files", len(jf.notes)-maxNotes)
		case i > maxNotes:
			return
		case isVariant(name):
			reason = "is a checkpoint where the original does not look for one: kept as it is, nothing is taken from it"
		}
		jf.In.Report.Notes = append(jf.In.Report.Notes, layouts.Problem{File: path.Join(jf.Dir, name), Reason: reason})
	}
}

// Same implements sessiondir.Found.
func (jf *jobFolder) Same(ctx context.Context, v view, name string) (bool, error) {
	o, ok, err := v.File(ctx, name)
	f := jf.file(name)
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
	if w := jf.byFile[f]; err == nil && !same && !o.Whole && w != nil && jf.In.Options.NoSecrets {
		same = st.value == w.setting.sum() // values that are left out are not compared
	}
	return same, err
}
