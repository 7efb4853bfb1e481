// Package panel says once what the records of a panel's session mean: which runs and
// markers it has, and what its two files show of them. The session that a program holds
// and the folder on disk both read it. It works on the files' own JSON, since those bytes
// come out as they went in.
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
	ImportSource = "urn:tally:import:errata" // CloudEvents source of every event that an import makes
	MarkerType   = "rewind"                  // of a summary that stands for a rewind
	MarkerReason = "imported"                // of a rewind that an imported marker stands for
	RatedTag     = "rated:"                  // before the model that was rated bad, among the tags of a run

	// FieldContent is what surrounds the runs and histories of session_content.json,
	// where that is not what its writer writes.
	FieldContent = "errataContent"

	rewoundNote = "[rewound]"
)

// The lengths to which prompts are cut.
const (
	previewBytes = 120
	promptRunes  = 120
)

// KindRecipeText is the kind of documents that hold recipe.md of a session, whose id is
// theirs. It is there beside what is stored under the recipe's hash, as the hash leaves
// the models out.
const KindRecipeText = "recipe-text"

// PromptHash returns the name of a prompt: ph_ and its SHA-256 in hex.
func PromptHash(prompt string) string {
	sum := sha256.Sum256([]byte(prompt))
	return "ph_" + hex.EncodeToString(sum[:])
}

// HashOf returns the hash of a content's prompt: as it says, since bytes that are not
// UTF-8 are lost from the prompt, else by the prompt.
func HashOf(content rawjson.Members) string {
	if hash := content.Text("prompt_hash"); hash != "" {
		return hash
	}
	return PromptHash(content.Text("prompt"))
}

// Preview cuts a prompt to what a summary shows, if need be in the middle of a rune.
func Preview(prompt string) string { return prompt[:min(len(prompt), previewBytes)] }

// Cut cuts a prompt to what the metadata show of the first and the last one.
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

// IsMarker reports whether a summary stands for a rewind.
func IsMarker(summary rawjson.Members) bool { return summary.Text("type") == MarkerType }

// Unfinished returns the checkpoint of the run that was saved last and not cleared, nil
// if there is none.
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

// UsualContent is what surrounds runs and histories as the original writes it.
func UsualContent(session string, runs int) rawjson.Members {
	if runs == 0 {
		return rawjson.Members{{Name: "runs", Value: events.Raw("null")}}
	}
	return rawjson.Members{{Name: "session_id", Value: JSON(session)}, {Name: "runs", Value: events.Raw("[]")}}
}
