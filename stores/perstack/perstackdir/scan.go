package perstackdir

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/formats"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/stores/internal/foreign"
	"github.com/tallylog/tally/stores/perstack/internal/shape"
)

// unit is the folder of a job, as the importer found it.
type unit struct {
	foreign.Folder

	job     string // its id
	key     string // the name of its folder, where that is not made of the id; else ""
	values  []*value
	files   map[string]*foreign.File // by path
	byFile  map[*foreign.File]*value // what goes into the session
	out     map[string]bool          // files, and folders with a slash behind them, that are not looked at: they stay as the store has them
	notes   []string                 // paths of files that the original does not know
	birth   string                   // what the job says of its beginning
	created events.Timestamp         // best knowledge of the beginning
}

// newUnit returns a unit of which nothing was looked at yet.
func (im importer) newUnit(at foreign.Unit) *unit {
	u := &unit{Folder: im.Folder(at), files: make(map[string]*foreign.File), byFile: make(map[*foreign.File]*value), out: make(map[string]bool)}
	u.job, _ = shape.JobID(at.ID)
	if name := path.Base(u.Dir); formats.FileName(u.job) != name {
		u.key = foreign.KeyOf(name)
	}
	return u
}

// file returns the file of a path, nil if the unit has none.
func (u *unit) file(name string) *foreign.File { return u.files[name] }

// of returns the value of a part, nil if there is none or nothing could be read from it.
func (u *unit) of(p part) *value {
	for _, v := range u.values {
		if v.part == p && v.Value && !u.isOut(v.Path) {
			return v
		}
	}
	return nil
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
func (u *unit) isSecretive(f *foreign.File) bool {
	v := u.byFile[f]
	return isPrivate(f.Path) && (v == nil || len(v.setting.values)+len(v.setting.suspects) > 0)
}

// value is what a file holds that goes into the session.
type value struct {
	*foreign.File
	place
	raw events.Raw // nil: it is read again when its turn comes
	sum string     // of the raw value

	run  string // its id
	id   string // of a checkpoint
	base string // of an event: its path without .json, and without the number of those of one name
	n    int    // that number, 1 for the first
	at   int64  // Unix milliseconds, of an event; of a checkpoint, those of the one that it goes in behind
	step int64

	job        shape.Job // of a job
	checkpoint shape.Checkpoint
	event      shape.Event
	setting    setting
}

// scanned settles what the folder of a job holds.
func (im importer) scanned(at foreign.Unit) (*unit, error) {
	u := im.newUnit(at)
	if err := im.list(u, ""); err != nil {
		return nil, err
	}
	for _, f := range u.Files {
		if err := im.scan(u, f); err != nil {
			return nil, err
		}
		if f.Sum != "" {
			u.files[f.Path] = f
		}
	}
	u.Files = slices.DeleteFunc(u.Files, func(f *foreign.File) bool { return f.Sum == "" && !u.out[f.Path] }) // taken away meanwhile
	inOrder(u.values)
	return u, u.begin()
}

// list finds the files of a folder and of those in it. What may not be read is reported, and
// everything else goes in.
func (im importer) list(u *unit, dir string) error {
	entries, err := im.Tree.Entries(path.Join(u.Dir, dir))
	if err != nil {
		if dir == "" {
			return err
		}
		u.out[dir+"/"] = true
		im.Problem(path.Join(u.Dir, dir), 0, fileReason(err)+": nothing below it is imported")
		return nil
	}
	for _, e := range entries {
		rel := path.Join(dir, e.Name())
		switch {
		case e.IsDir():
			err = im.list(u, rel)
		case !e.Type().IsRegular():
			u.Links = append(u.Links, path.Join(u.Dir, rel))
		default:
			err = u.add(e, rel)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (u *unit) add(e fs.DirEntry, rel string) error {
	info, err := e.Info()
	if errors.Is(err, fs.ErrNotExist) {
		return nil // taken away meanwhile
	}
	if err != nil {
		return err
	}
	f, err := foreign.Found(info, rel, path.Join(u.Dir, rel))
	if err == nil {
		u.Files = append(u.Files, f)
	}
	return err
}

// scan reads a file once. One that was taken away meanwhile gets no sum.
func (im importer) scan(u *unit, f *foreign.File) error {
	p := placeOf(f.Path)
	data, err := im.read(u, f)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		u.out[f.Path] = true
		f.Problem(0, fileReason(err)+": not imported")
		return nil
	case p.part == partOther:
		if im.mayKeep(u, f, "it may hold secrets") {
			u.notes = append(u.notes, f.Path)
		}
		return nil
	case data == nil:
		im.useless(u, f, 0, fmt.Sprintf("longer than %d bytes", u.Limit))
		return nil
	}
	v := &value{File: f, place: p}
	if err := v.take(u, data); err != nil {
		f.Format = events.FileFormat{}
		im.useless(u, f, foreign.LineOf(data, err), foreign.ReasonOf(err))
		return nil
	}
	f.Value, u.byFile[f], u.values = true, v, append(u.values, v)
	im.guard(u, v)
	return nil
}

// useless reports a file that is kept as it is, because nothing can be taken from it.
func (im importer) useless(u *unit, f *foreign.File, line int, why string) {
	if im.mayKeep(u, f, why) {
		f.Problem(line, why+": kept as it is, nothing is taken from it")
	}
}

// read reads a file, and hashes it. One that is larger than what an event can hold is only
// hashed: then data is nil.
func (im importer) read(u *unit, f *foreign.File) (data []byte, err error) {
	if f.Size > int64(u.Limit) {
		return nil, u.Tree.Hash(f)
	}
	if data, err = u.Tree.Read(f, int64(u.Limit)+1); err != nil {
		return nil, err
	}
	if len(data) > u.Limit { // it grew
		return nil, u.Tree.Hash(f)
	}
	f.Sum, f.Size = foreign.SumOf(data), int64(len(data))
	if data == nil {
		data = []byte{}
	}
	return data, nil
}

// fileReason says what is wrong with a file, without its path.
func fileReason(err error) string {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err.Error()
	}
	return err.Error()
}

// take reads the value of a file. Its name has to follow from it: otherwise it would come
// out under another.
func (v *value) take(u *unit, data []byte) error {
	j, err := foreign.ReadJSON(data, foreign.TurnInside)
	if err == nil {
		err = j.NoObject
	}
	if err != nil {
		return err
	}
	v.raw, v.Format, v.sum = j.Raw, j.Format, foreign.SumOf(j.Raw)
	if err := v.read(u); err != nil {
		return err
	}
	if v.part != partJob {
		v.raw = nil
	}
	return nil
}

// read reads what a value is called by, and how it is ordered.
func (v *value) read(u *unit) error {
	switch v.part {
	case partJob:
		return v.readJob(u)
	case partCheckpoint:
		return v.readCheckpoint(u)
	case partSetting:
		return v.readSetting(u)
	}
	return v.readEvent(u)
}

func (v *value) readJob(u *unit) error {
	job, err := shape.ParseJob(v.raw)
	if err == nil {
		err = wantID("id", job.ID, u.job)
	}
	if err != nil {
		return err
	}
	compact := rawjson.AppendCompact(nil, v.raw)
	usual := v.Format
	usual.Indent = jobIndent
	if foreign.SumOf(foreign.SpellJSON(compact, usual)) == v.Sum {
		v.raw, v.Format = compact, usual
	}
	v.job = job
	u.birth, u.created = strconv.FormatInt(job.StartedAt, 10), job.Created().CreatedAt
	return nil
}

func (v *value) readCheckpoint(u *unit) error {
	c, err := shape.ParseCheckpoint(v.raw)
	if err != nil {
		return err
	}
	v.id, v.run, v.step = c.ID, c.Run, c.Step
	if err := wantID("jobId", c.Job, u.job); err != nil {
		return err
	}
	return wantName("id", c.ID, v.name)
}

func (v *value) readEvent(u *unit) error {
	e, err := shape.ParseEvent(v.raw)
	if err != nil {
		return err
	}
	v.run, v.at, v.step = e.Run, e.Timestamp, e.Step
	if err := wantID("jobId", e.Job, u.job); err != nil {
		return err
	}
	if err := wantName("runId", e.Run, v.place.run); err != nil {
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

func (v *value) readSetting(u *unit) error {
	s, err := shape.ParseSetting(v.raw)
	if err != nil {
		return err
	}
	v.run = s.Run
	if err := wantID("jobId", s.Job, u.job); err != nil {
		return err
	}
	if err := wantName("runId", s.Run, v.place.run); err != nil {
		return err
	}
	return v.takeSecrets(s)
}

// wantID refuses a value of another job than the one whose folder it is in.
func wantID(member, have, want string) error {
	if have == want {
		return nil
	}
	return &rawjson.FieldError{Path: member, Reason: fmt.Sprintf("is %.80q in the folder of %.80q", have, want)}
}

// wantName refuses a value that another file would hold.
func wantName(member, says, name string) error {
	if isNameOf(name, says) {
		return nil
	}
	return &rawjson.FieldError{Path: member, Reason: fmt.Sprintf("%.80q is not what the file is called after", says)}
}

// cutNumber takes a name apart that has a number for its second part: the second event of a
// name, and those after it, have one.
func cutNumber(name string) (rest string, n int, ok bool) {
	i := strings.LastIndexByte(name, '.')
	if i < 0 {
		return name, 0, false
	}
	n, err := strconv.Atoi(name[i+1:])
	return name[:i], n, err == nil && n > 1 && strconv.Itoa(n) == name[i+1:]
}

// identified finds out the id of the job. Its folder is called after it; where a name could
// be an encoded one, the files say whether it is.
func (im importer) identified(at foreign.Unit) foreign.Unit {
	name := path.Base(at.Dir)
	id := at.ID
	if id != name || formats.FileName(id) != name {
		if says, ok := im.says(at); ok && isNameOf(name, says) {
			id = says
		} else if !utf8.ValidString(id) {
			id = foreign.KeyOf(name)
		}
	}
	return foreign.Unit{ID: shape.SessionID(id), Dir: at.Dir}
}

// says returns the id of the job that the first file says which says any.
func (im importer) says(at foreign.Unit) (string, bool) {
	u := im.newUnit(at)
	if im.quietly().list(u, "") != nil {
		return "", false
	}
	for _, f := range u.Files {
		member := "jobId"
		switch placeOf(f.Path).part {
		case partOther:
			continue
		case partJob:
			member = "id"
		}
		data, err := u.Tree.Read(f, int64(u.Limit))
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

// quietly returns an importer whose report nobody reads.
func (im importer) quietly() importer { return importer{im.Part(), im.keys} }

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
