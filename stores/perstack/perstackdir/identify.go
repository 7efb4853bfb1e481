package perstackdir

import (
	"fmt"
	"path"
	"unicode/utf8"

	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/stores/internal/sessiondir"
	"github.com/tallylog/tally/stores/perstack/internal/shape"
)

// distinct sets the ids of the entries, and reports and omits a second folder of the same job.
func distinct(in *sessiondir.Intake, entries []sessiondir.Entry) []sessiondir.Entry {
	dirs := make(map[string]string)
	var list []sessiondir.Entry
	for _, e := range entries {
		e = identified(in, e)
		if first, ok := dirs[e.ID]; ok {
			in.Problem(e.Dir, 0, fmt.Sprintf("belongs to the same job as %s: not imported", first))
			continue
		}
		dirs[e.ID] = e.Dir
		list = append(list, e)
	}
	return list
}

// identified finds the id of the job. Its folder has the id as its name. If the name may be an encoded one, the files
// decide.
func identified(in *sessiondir.Intake, at sessiondir.Entry) sessiondir.Entry {
	name := path.Base(at.Dir)
	id := at.ID
	if id != name || layouts.FileName(id) != name {
		if says, ok := says(in, at); ok && isNameOf(name, says) {
			id = says
		} else if !utf8.ValidString(id) {
			id = sessiondir.KeyOf(name)
		}
	}
	return sessiondir.Entry{ID: shape.SessionID(id), Dir: at.Dir}
}

// says returns the job's id from the first file that has it.
func says(in *sessiondir.Intake, at sessiondir.Entry) (string, bool) {
	jf := newJobFolder(in.Part().Folder(at), keyring{}) // its reports are dropped
	if jf.list("") != nil {
		return "", false
	}
	for _, f := range jf.Files {
		member := "jobId"
		switch locate(f.Path).part {
		case partOther:
			continue
		case partJob:
			member = "id"
		}
		data, err := jf.Tree.Read(f, int64(jf.Limit))
		if err != nil {
			continue
		}
		m, err := rawjson.Object(data)
		if id := m.Text(member); err == nil && id != "" {
			return id, true
		}
	}
	return "", false
}
