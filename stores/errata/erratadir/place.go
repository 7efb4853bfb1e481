package erratadir

import (
	"crypto/sha256"
	"encoding/hex"
	"path"
	"strings"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/formats"
	"github.com/tallylog/tally/stores/errata/internal/panel"
	"github.com/tallylog/tally/stores/internal/foreign"
)

// Format is the layout's name.
const Format = "errata"

// EventSource is the CloudEvents source of every event that an import makes.
const EventSource = panel.ImportSource

var stamp = foreign.Stamp{Format: Format, Source: EventSource}

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

// partOf says what a file of a session holds.
func partOf(id, name string) part {
	if own, ok := beside[id]; ok {
		switch {
		case name != own:
			return partOther
		case id == promptsID:
			return partPrompts
		case id == historyID:
			return partHistory
		}
		return partCheckpoint
	}
	switch name {
	case metadataName:
		return partMetadata
	case contentName:
		return partContent
	case checkpointName:
		return partCheckpoint
	case recipeName:
		return partRecipe
	}
	return partOther
}

// dirOf gives the folder of a session below the root, "" for those beside.
func dirOf(id string) string {
	if _, ok := beside[id]; ok {
		return ""
	}
	return sessions + "/" + formats.FileName(id)
}

// documentOf names the document of a file that is kept whole.
func documentOf(ns, root, full string) events.Subject {
	id := root + "/" + full
	if len(id) > events.MaxIDLen {
		sum := sha256.Sum256([]byte(full))
		id = root[:min(len(root), 255)] + "/=~" + hex.EncodeToString(sum[:])
	}
	return events.Document(ns, events.KindFile, id)
}

// isBelow reports whether a document of kind file is one of a root.
func isBelow(id, root string) bool { return strings.HasPrefix(id, root+"/") }

// ofSession reports whether a document that is kept whole belongs to a session.
func ofSession(have foreign.Stored) bool {
	for _, l := range have.Meta.Links {
		if l.Rel == "session" {
			return true
		}
	}
	return false
}

// pathIn gives the path of a kept file below its root.
func pathIn(have foreign.Stored, root string) string {
	if name := have.Meta.Attributes[foreign.AttrPath]; name != "" {
		return foreign.PathOf(name)
	}
	return strings.TrimPrefix(have.Doc.ID, root+"/")
}

// docMeta describes a file that is kept whole.
func docMeta(root, marker string, s *source, links ...events.Link) events.DocMeta {
	attributes := map[string]string{foreign.AttrRoot: root, foreign.AttrPath: foreign.KeyOf(path.Clean(s.full)),
		foreign.AttrMarker: marker, foreign.AttrSHA256: s.sum}
	if s.mode != 0 {
		attributes[foreign.AttrMode] = foreign.FormatMode(s.mode)
	}
	return events.DocMeta{Attributes: attributes, Links: links}
}
