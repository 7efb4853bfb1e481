package perstackdir

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/stores/internal/sessiondir"
	"github.com/tallylog/tally/stores/perstack/internal/shape"
)

// value is a file's value that goes into the session.
type value struct {
	*sessiondir.File
	location
	raw events.Raw // nil: it is read again for the import
	sum string     // of the raw value

	run  string // its id
	id   string // of a checkpoint
	base string // of an event: its path without .json and without the number of events with the same name
	n    int    // that number, from 1
	at   int64  // Unix milliseconds; of a checkpoint, those of the event that it follows
	step int64

	job     shape.Job // of a job
	setting setting
}

// take parses the value of a file. The file's name must follow from the value; otherwise an export would write another
// name.
func (v *value) take(jf *jobFolder, data []byte) error {
	j, err := sessiondir.ReadJSON(data, sessiondir.TurnInside)
	if err == nil {
		err = j.NoObject
	}
	if err != nil {
		return err
	}
	v.raw, v.Format, v.sum = j.Raw, j.Format, sessiondir.SumOf(j.Raw)
	if err := v.read(jf); err != nil {
		return err
	}
	if v.part != partJob {
		v.raw = nil
	}
	return nil
}

// read reads the parts of a value that determine its name and order.
func (v *value) read(jf *jobFolder) error {
	switch v.part {
	case partJob:
		return v.readJob(jf)
	case partCheckpoint:
		return v.readCheckpoint(jf)
	case partSetting:
		return v.readSetting(jf)
	}
	return v.readEvent(jf)
}

func (v *value) readJob(jf *jobFolder) error {
	job, err := shape.ParseJob(v.raw)
	if err == nil {
		err = wantID("id", job.ID, jf.job)
	}
	if err != nil {
		return err
	}
	compact := rawjson.AppendCompact(nil, v.raw)
	usual := v.Format
	usual.Indent = jobIndent
	if sessiondir.SumOf(sessiondir.SpellJSON(compact, usual)) == v.Sum {
		v.raw, v.Format = compact, usual
	}
	v.job = job
	jf.birth, jf.created = strconv.FormatInt(job.StartedAt, 10), job.Created().CreatedAt
	return nil
}

func (v *value) readCheckpoint(jf *jobFolder) error {
	c, err := shape.ParseCheckpoint(v.raw)
	if err != nil {
		return err
	}
	v.id, v.run, v.step = c.ID, c.Run, c.Step
	if err := wantID("jobId", c.Job, jf.job); err != nil {
		return err
	}
	return wantName("id", c.ID, v.name)
}

func (v *value) readEvent(jf *jobFolder) error {
	e, err := shape.ParseEvent(v.raw)
	if err != nil {
		return err
	}
	v.run, v.at, v.step = e.Run, e.Timestamp, e.Step
	if err := wantID("jobId", e.Job, jf.job); err != nil {
		return err
	}
	if err := wantName("runId", e.Run, v.location.run); err != nil {
		return err
	}
	says := shape.EventName(e.Timestamp, e.Step, e.Type)
	name, n := v.name, 1
	if rest, number, ok := cutNumber(name); ok && !isNameOf(name, says) {
		name, n = rest, number
	}
	v.base, v.n = eventPath(e), n
	return wantName("timestamp, stepNumber and type", says, name)
}

func (v *value) readSetting(jf *jobFolder) error {
	s, err := shape.ParseSetting(v.raw)
	if err != nil {
		return err
	}
	v.run = s.Run
	if err := wantID("jobId", s.Job, jf.job); err != nil {
		return err
	}
	if err := wantName("runId", s.Run, v.location.run); err != nil {
		return err
	}
	return v.takeSecrets(s)
}

// wantID refuses a value of another job.
func wantID(member, have, want string) error {
	if have == want {
		return nil
	}
	return &rawjson.FieldError{Path: member, Reason: fmt.Sprintf("got %.80q in the folder of %.80q", have, want)}
}

// wantName refuses a value that belongs to another file.
func wantName(member, says, name string) error {
	if isNameOf(name, says) {
		return nil
	}
	return &rawjson.FieldError{Path: member, Reason: fmt.Sprintf("%.80q does not match the name of the file", says)}
}

// cutNumber splits a name and the number after it. The second and further events with the same name have a number.
func cutNumber(name string) (rest string, n int, ok bool) {
	i := strings.LastIndexByte(name, '.')
	if i < 0 {
		return name, 0, false
	}
	n, err := strconv.Atoi(name[i+1:])
	return name[:i], n, err == nil && n > 1 && strconv.Itoa(n) == name[i+1:]
}
