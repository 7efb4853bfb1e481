// Package panel interprets the records of a panel's session: its runs and markers, and the content of its two files.
// The handle for programs and the folder layout both use it. It keeps the files' own JSON, because imported bytes
// must be exported unchanged.
package panel

import (
	"crypto/sha256"
	"encoding/hex"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/projector"
)

const (
	Kind         = "panel"                   // of the runs
	Schema       = "errata/panel"            // of their results
	ImportSource = "urn:tally:import:errata" // CloudEvents source of every event of an import
	MarkerType   = "rewind"                  // type of a summary that marks a rewind
	MarkerReason = "imported"                // reason of a rewind that was made for an imported marker
	RatedTag     = "rated:"                  // precedes the model that was rated bad, among the tags of a run

	// FieldContent has the members of session_content.json beside runs and histories, if they differ from the usual
	// ones.
	FieldContent = "errataContent"

	rewoundNote = "[rewound]"
)

// Lengths to which prompts are cut.
const (
	previewBytes = 120
	promptRunes  = 120
)

// KindRecipeText is the kind of documents with the recipe.md of a session; their id is the session's. It exists
// beside the text that is stored under the recipe's hash, because the hash does not cover the models.
const KindRecipeText = "recipe-text"

// PromptHash returns the name of a prompt: ph_ and its SHA-256 in hex.
func PromptHash(prompt string) string {
	sum := sha256.Sum256([]byte(prompt))
	return "ph_" + hex.EncodeToString(sum[:])
}

// HashOf returns the hash of a content's prompt: its member, because bytes that are not UTF-8 are missing from the
// prompt, else the prompt's hash.
func HashOf(content rawjson.Members) string {
	if hash := content.Text("prompt_hash"); hash != "" {
		return hash
	}
	return PromptHash(content.Text("prompt"))
}

// Preview cuts a prompt to the length of a summary, even in the middle of a rune.
func Preview(prompt string) string { return prompt[:min(len(prompt), previewBytes)] }

// Cut cuts a prompt to the length of the metadata's first and last prompt.
func Cut(prompt string) string {
	n := 0
	for i := range prompt {
		if n == promptRunes {
			return prompt[:i]
		}
		n++
	}
	return prompt
}

// IsMarker reports whether a summary marks a rewind.
func IsMarker(summary rawjson.Members) bool { return summary.Text("type") == MarkerType }

// Unfinished returns the checkpoint that was saved last and not cleared, or nil.
func Unfinished(l *projector.Ledger) *projector.Checkpoint {
	var open *projector.Checkpoint
	for _, c := range l.Checkpoints {
		if c.Kind == events.CheckpointResume && !c.Cleared && (open == nil || Newest(c) > Newest(open)) {
			open = c
		}
	}
	return open
}

// Newest returns the offset of a checkpoint's newest version.
func Newest(c *projector.Checkpoint) events.Offset { return c.Saved[len(c.Saved)-1] }

// UsualContent returns the members that the original writes beside runs and histories.
func UsualContent(session string, runs int) rawjson.Members {
	if runs == 0 {
		return rawjson.Members{{Name: "runs", Value: events.Raw("null")}}
	}
	return rawjson.Members{{Name: "session_id", Value: JSON(session)}, {Name: "runs", Value: events.Raw("[]")}}
}
