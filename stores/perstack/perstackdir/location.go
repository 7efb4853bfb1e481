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

	fieldFolder = "perstackFolder" // field with the name of the job's folder, if it does not follow from the id
	everyFile   = "./"             // in a session's formats, all files that have no entry; no path ends so
)

// jobIndent is the original's indentation of job.json.
const jobIndent = "  "

// part is the kind of a job's file.
type part int

const (
	partOther part = iota // unknown: the file is kept whole
	partJob
	partCheckpoint
	partEvent
	partSetting
)

// location is what the path of a file means.
type location struct {
	part part
	run  string // name of the run's folder
	name string // of the file, without .json
}

// locate parses a path inside a job's folder.
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

// isVariant reports whether a path is that of a checkpoint in the folder of its run, as some of the original's pages
// describe it.
func isVariant(full string) bool {
	dirs := strings.Split(full, "/")
	return len(dirs) == 3 && dirs[0] == runsName && strings.HasPrefix(dirs[2], "checkpoint-") && strings.HasSuffix(full, suffix)
}

// isPrivate reports whether a kept file may hold the secrets of a setting: the setting itself, and files of editors or
// interrupted writes beside it.
func isPrivate(full string) bool { return strings.Contains(path.Base(full), "run-setting") }

// The paths of files, made from ids.
func checkpointPath(id string) string { return checkpointsName + "/" + layouts.FileName(id) + suffix }
func settingPath(run string) string   { return runDir(run) + settingName }
func runDir(run string) string        { return runsName + "/" + layouts.FileName(run) + "/" }

// eventPath returns the path of an event's file, without .json. The second of several with the same name has .2 after
// it, and so on.
func eventPath(e shape.Event) string {
	return runDir(e.Run) + layouts.FileName(shape.EventName(e.Timestamp, e.Step, e.Type))
}

func numbered(base string, n int) string {
	if n == 1 {
		return base + suffix
	}
	return base + "." + strconv.Itoa(n) + suffix
}

// stampOf returns a time in Unix milliseconds as a timestamp of the log, or "".
func stampOf(ms int64) events.Timestamp {
	if at := shape.At(ms); !at.IsZero() {
		return events.TimestampOf(at)
	}
	return ""
}

// isNameOf reports whether a file has an id as its name: unchanged, as in the original, or encoded if necessary.
func isNameOf(name, id string) bool { return name == id || name == layouts.FileName(id) }

// dirOf returns the folder of a session below the root.
func dirOf(s *projector.Session) string {
	if name := sessiondir.PathOf(s.Ledger.Text(fieldFolder)); layouts.IsFileName(name) {
		return jobsName + "/" + name
	}
	return jobsName + "/" + layouts.FileName(jobID(s.Subject))
}

// jobID returns the id of a session's job.
func jobID(sub events.Subject) string { return strings.TrimPrefix(sub.ID, shape.SessionID("")) }

// documentOf returns the document of a kept file.
func documentOf(ns, root, full string) events.Subject {
	return sessiondir.DocumentOf(ns, root, full, "")
}
