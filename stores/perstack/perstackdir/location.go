package perstackdir

import (
	"path"
	"strconv"
	"strings"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/internal/sessiondir"
	"github.com/tallylog/tally/stores/perstack/internal/shape"
)

// Format is the layout's name.
const Format = "perstack"

// EventSource is the CloudEvents source of every event that an import makes.
const EventSource = "urn:tally:import:perstack"

var stamp = sessiondir.Stamp{Format: Format, Source: EventSource}

const (
	jobsName        = "jobs"
	jobName         = "job.json"
	checkpointsName = "checkpoints"
	runsName        = "runs"
	settingName     = "run-setting.json"
	eventPrefix     = "event-"
	suffix          = ".json"

	fieldFolder = "perstackFolder" // name of the job's folder, where it is not the one made of its id
	everyFile   = "./"             // names, in a session's formats, the files that are not named there; no path ends so
)

// jobIndent is by how much the original indents job.json.
const jobIndent = "  "

// part says what a file of a job holds.
type part int

const (
	partOther part = iota // nothing that is known: the file is kept whole
	partJob
	partCheckpoint
	partEvent
	partSetting
)

// place is what the path of a file says.
type location struct {
	part part
	run  string // name of the run's folder
	name string // of the file, without .json
}

// placeOf reads a path inside a job's folder.
func locate(full string) location {
	name, isJSON := strings.CutSuffix(path.Base(full), suffix)
	dirs := strings.Split(full, "/")
	switch {
	case full == jobName:
		return location{part: partJob, name: name}
	case !isJSON:
	case len(dirs) == 2 && dirs[0] == checkpointsName:
		return location{part: partCheckpoint, name: name}
	case len(dirs) != 3 || dirs[0] != runsName:
	case dirs[2] == settingName:
		return location{partSetting, dirs[1], name}
	case strings.HasPrefix(name, eventPrefix):
		return location{partEvent, dirs[1], name}
	}
	return location{}
}

// isVariant reports whether a path is that of a checkpoint as some of the original's pages
// describe it: in the folder of its run.
func isVariant(full string) bool {
	dirs := strings.Split(full, "/")
	return len(dirs) == 3 && dirs[0] == runsName && strings.HasPrefix(dirs[2], "checkpoint-") && strings.HasSuffix(full, suffix)
}

// isPrivate reports whether a file that is kept whole may hold the secrets of a setting:
// the setting itself, and what an editor or a half-done write left beside it.
func isPrivate(full string) bool { return strings.Contains(path.Base(full), "run-setting") }

// The paths of files, made of ids.
func checkpointPath(id string) string { return checkpointsName + "/" + layouts.FileName(id) + suffix }
func settingPath(run string) string   { return runDir(run) + settingName }
func runDir(run string) string        { return runsName + "/" + layouts.FileName(run) + "/" }

// eventPath is the path of an event's file, without .json: the second of those with one name
// has .2 there, and so on.
func eventPath(e shape.Event) string {
	return runDir(e.Run) + layouts.FileName(shape.EventName(e.Timestamp, e.Step, e.Type))
}

func numbered(base string, n int) string {
	if n == 1 {
		return base + suffix
	}
	return base + "." + strconv.Itoa(n) + suffix
}

// stampOf is a time in Unix milliseconds as the log spells it, "" if it does not.
func stampOf(ms int64) events.Timestamp {
	if at := shape.At(ms); !at.IsZero() {
		return events.TimestampOf(at)
	}
	return ""
}

// isNameOf reports whether a file is called after an id: as it stands, which is what the
// original does, or as it is encoded where that cannot be.
func isNameOf(name, id string) bool { return name == id || name == layouts.FileName(id) }

// dirOf is the folder of a session below the root.
func dirOf(s *projector.Session) string {
	if name := sessiondir.PathOf(s.Ledger.Text(fieldFolder)); layouts.IsFileName(name) {
		return jobsName + "/" + name
	}
	return jobsName + "/" + layouts.FileName(jobID(s.Subject))
}

// jobID is the id of a session's job.
func jobID(sub events.Subject) string { return strings.TrimPrefix(sub.ID, shape.SessionID("")) }

// documentOf names the document of a file that is kept whole.
func documentOf(ns, root, full string) events.Subject {
	return sessiondir.DocumentOf(ns, root, full, "")
}
