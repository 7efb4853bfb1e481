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
	costSource = "urn:tally:cost" // of costs whose ids follow from their run

	privateMode = 0o600 // of files that were not imported; their original writer uses this mode
)

// The sessions of files beside sessions/.
const (
	promptsID  = "prompts"
	historyID  = "history"
	headlessID = "headless"
)

// beside maps sessions without a folder to their files.
var beside = map[string]string{promptsID: promptsName, historyID: historyName, headlessID: checkpointName}

// part is the part of a session that a file has.
type part int

const (
	partOther part = iota // the file is kept whole
	partMetadata
	partContent
	partCheckpoint
	partRecipe
	partPrompts
	partHistory
)

// The parts by file names, in a session's folder and beside the folders.
var (
	partsInside = map[string]part{metadataName: partMetadata, contentName: partContent, checkpointName: partCheckpoint, recipeName: partRecipe}
	partsBeside = map[string]part{promptsName: partPrompts, historyName: partHistory, checkpointName: partCheckpoint}
)

// partOf returns the part that a file of a session has.
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

// dirOf returns the folder of a session below the root, "" for a session without a folder.
func dirOf(id string) string {
	if _, ok := beside[id]; ok {
		return ""
	}
	return sessions + "/" + layouts.FileName(id)
}

// documentOf returns the document of a file that is kept whole.
func documentOf(ns, root, full string) events.Subject {
	return sessiondir.DocumentOf(ns, root, full, "")
}
