package erratadir

import (
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/stores/errata/internal/panel"
	"github.com/tallylog/tally/stores/internal/sessiondir"
)

// Format is the layout's name.
const Format = "errata"

// EventSource is the CloudEvents source of every event that an import makes.
const EventSource = panel.ImportSource

var stamp = sessiondir.Stamp{Format: Format, Source: EventSource}

const (
	sessions       = "sessions"
	metadataName   = "session_metadata.json"
	contentName    = "session_content.json"
	checkpointName = "checkpoint.json"
	recipeName     = "recipe.md"
	promptsName    = "prompt_history.jsonl"
	historyName    = "history.json"
	recipesName    = "recipes.json"
	configsName    = "configs.json" // of the first generation of hashes

	kindRecipe = "recipe"
	costSource = "urn:tally:cost" // of costs whose identity follows from their run

	privateMode = 0o600 // of files that no import brought, as their writer has it
)

// The sessions of what lies beside sessions/.
const (
	promptsID  = "prompts"
	historyID  = "history"
	headlessID = "headless"
)

// beside gives the file of a session that is no folder of its own.
var beside = map[string]string{promptsID: promptsName, historyID: historyName, headlessID: checkpointName}

// part says which part of a session a file holds.
type part int

const (
	partOther part = iota // none: the file is kept whole
	partMetadata
	partContent
	partCheckpoint
	partRecipe
	partPrompts
	partHistory
)

// The parts by the names of their files, in a session's folder and beside them.
var (
	partsInside = map[string]part{metadataName: partMetadata, contentName: partContent, checkpointName: partCheckpoint, recipeName: partRecipe}
	partsBeside = map[string]part{promptsName: partPrompts, historyName: partHistory, checkpointName: partCheckpoint}
)

// partOf says what a file of a session holds.
func partOf(id, name string) part {
	own, ok := beside[id]
	switch {
	case !ok:
		return partsInside[name]
	case name == own:
		return partsBeside[name]
	}
	return partOther
}

// dirOf gives the folder of a session below the root, "" for those beside.
func dirOf(id string) string {
	if _, ok := beside[id]; ok {
		return ""
	}
	return sessions + "/" + layouts.FileName(id)
}

// documentOf names the document of a file that is kept whole.
func documentOf(ns, root, full string) events.Subject {
	return sessiondir.DocumentOf(ns, root, full, "")
}
