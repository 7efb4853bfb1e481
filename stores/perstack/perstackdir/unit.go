package perstackdir

import (
	"path"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/formats"
	"github.com/tallylog/tally/stores/internal/sessiondir"
	"github.com/tallylog/tally/stores/perstack/internal/shape"
)

// unit is the folder of a job, as the importer found it.
type unit struct {
	sessiondir.Folder

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
func (im importer) newUnit(at sessiondir.Unit) *unit {
	u := &unit{Folder: im.Folder(at), files: make(map[string]*sessiondir.File), byFile: make(map[*sessiondir.File]*value), out: make(map[string]bool)}
	u.job, _ = shape.JobID(at.ID)
	if name := path.Base(u.Dir); formats.FileName(u.job) != name {
		u.key = sessiondir.KeyOf(name)
	}
	return u
}

// file returns the file of a path, nil if the unit has none.
func (u *unit) file(name string) *sessiondir.File { return u.files[name] }

// of returns the value of a part, nil if there is none or nothing could be read from it.
func (u *unit) of(p part) *value {
	for _, v := range u.values {
		if v.part == p && v.Value && !u.isOut(v.Path) {
			return v
		}
	}
	return nil
}

// status is what the job says of itself, nil if there is none.
func (u *unit) status() events.Raw {
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

// isOut reports whether a file is not looked at.
func (u *unit) isOut(name string) bool {
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
