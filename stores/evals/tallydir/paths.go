package tallydir

import (
	"strings"
	"unicode/utf8"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/stores/evals/internal/steps"
	"github.com/tallylog/tally/stores/internal/sessiondir"
)

// Format is the layout's name.
const Format = "tallydir"

// EventSource is the CloudEvents source of every event that an import makes.
const EventSource = "urn:tally:import:tallydir"

// stamp is set on the events of an import.
var stamp = sessiondir.Stamp{Format: Format, Source: EventSource}

const (
	conversations  = "conversations"
	metaName       = "meta.json"
	turnsName      = "conversation.jsonl"
	trajectoryName = "trajectory.meta.json"
	tracesName     = "stepTraces.json"
	runSuffix      = ".json"

	fieldFolder = "tallydirFolder" // name of the folder, if it differs from the one made of the id
)

// part is the part of a session that a file has.
type part int

const (
	partOther part = iota // the file is kept whole
	partMeta
	partTurns
	partTrajectory
	partTraces
	partRun
)

// role is the part that a file has, and its run if it is a run's.
type role struct {
	part part
	run  events.RunRef
}

// roleOf returns the role of a file in a conversation's folder.
func roleOf(path string) role {
	switch path {
	case metaName:
		return role{part: partMeta}
	case turnsName:
		return role{part: partTurns}
	case trajectoryName:
		return role{part: partTrajectory}
	case tracesName:
		return role{part: partTraces}
	}
	for _, kind := range []string{steps.KindTally, steps.KindTrajectory} {
		name, ok := strings.CutPrefix(path, "runs/"+kind+"/")
		name, isJSON := strings.CutSuffix(name, runSuffix)
		if !ok || !isJSON || strings.Contains(name, "/") || name == "" {
			continue
		}
		id, canonical := layouts.ParseFileName(name)
		if !canonical {
			id = name
		}
		if utf8.ValidString(id) {
			return role{partRun, events.RunRef{Kind: kind, ID: id}}
		}
	}
	return role{}
}

// isRunKind reports whether runs of a kind have files in this layout.
func isRunKind(kind string) bool { return kind == steps.KindTally || kind == steps.KindTrajectory }

// runPath returns the file of a run: the imported one, else the one made of its id.
func runPath(run events.RunRef, known map[string]events.FileFormat) string {
	dir := "runs/" + run.Kind + "/"
	if literal := dir + run.ID + runSuffix; layouts.IsFileName(run.ID + runSuffix) {
		if _, ok := known[sessiondir.KeyOf(literal)]; ok && roleOf(literal).run == run {
			return literal
		}
	}
	return dir + layouts.FileName(run.ID) + runSuffix
}

// documentOf returns the document of a file that is kept whole.
func documentOf(ns, root, path string) events.Subject {
	dir := ""
	if strings.HasPrefix(path, conversations+"/") && strings.Count(path, "/") > 1 {
		dir = conversations + "/=~/" // enough folders to distinguish a session's file from the root's
	}
	return sessiondir.DocumentOf(ns, root, path, dir)
}
