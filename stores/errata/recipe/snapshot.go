package recipe

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Snapshot is a configuration in the form of the older generations of hashes.
type Snapshot struct {
	Version             int                   `json:"version,omitempty"`
	Name                string                `json:"name"`
	SystemPrompt        string                `json:"system_prompt,omitempty"`
	ToolGuidance        map[string]string     `json:"tool_guidance,omitempty"`
	Tools               []string              `json:"tools,omitempty"` // of the last run
	BashPrefixes        []string              `json:"bash_prefixes,omitempty"`
	ToolDescriptions    map[string]string     `json:"tool_descriptions,omitempty"`
	Constraints         *SnapshotConstraints  `json:"constraints,omitempty"`
	Context             *SnapshotContext      `json:"context,omitempty"`
	OutputProcessing    map[string]OutputRule `json:"output_processing,omitempty"`
	SummarizationPrompt string                `json:"summarization_prompt,omitempty"`
}

// SnapshotConstraints are the constraints in a Snapshot.
type SnapshotConstraints struct {
	MaxSteps int    `json:"max_steps,omitempty"`
	Timeout  string `json:"timeout,omitempty"`
}

// SnapshotContext is the context in a Snapshot.
type SnapshotContext struct {
	MaxHistoryTurns  int     `json:"max_history_turns,omitempty"`
	Strategy         string  `json:"strategy,omitempty"`
	CompactThreshold float64 `json:"compact_threshold,omitempty"`
	TaskMode         string  `json:"task_mode,omitempty"`
}

// Snapshot returns a recipe with the active tools. Without a recipe, it has only the name: default.
func (r *Recipe) Snapshot(tools []string) Snapshot {
	s := Snapshot{Name: "default", Tools: slices.Clone(tools)}
	if r == nil {
		return s
	}
	c := r.Clone()
	s.Name = cmp.Or(c.Name, s.Name)
	s.Version, s.SystemPrompt, s.ToolDescriptions = c.Version, c.SystemPrompt, c.ToolDescriptions
	s.SummarizationPrompt, s.OutputProcessing = c.SummarizationPrompt, c.OutputProcessing
	if c.Tools != nil {
		s.ToolGuidance, s.BashPrefixes = c.Tools.Guidance, c.Tools.BashPrefixes
	}
	if c.Constraints.MaxSteps > 0 || c.Constraints.Timeout > 0 {
		s.Constraints = &SnapshotConstraints{MaxSteps: c.Constraints.MaxSteps}
		if c.Constraints.Timeout > 0 {
			s.Constraints.Timeout = c.Constraints.Timeout.String()
		}
	}
	if context := (SnapshotContext(c.Context)); context != (SnapshotContext{}) {
		s.Context = &context
	}
	return s
}

// ConfigHash returns the hash of the first generation: cfg_v, the version, and the SHA-256 of the JSON without the
// name.
func (s Snapshot) ConfigHash() string {
	s.Name = ""
	return fmt.Sprintf("cfg_v%d_%s", s.Version, hashOf(mustJSON(s)))
}

// VersionedHash returns the hash of the second generation: rcp_v, the version, and the SHA-256 of the JSON.
func (s Snapshot) VersionedHash() string {
	return fmt.Sprintf("rcp_v%d_%s", s.Version, hashOf(mustJSON(s)))
}

// IsSnapshotHash reports whether a hash is of one of the older generations, whose texts are a Snapshot in JSON. Other
// hashes name markdown.
func IsSnapshotHash(hash string) bool {
	return strings.HasPrefix(hash, "cfg_v") || strings.HasPrefix(hash, "rcp_v")
}

// NameOf returns the name in a hash's text: default if it has none, "" if the text is invalid.
func NameOf(hash string, text []byte) string {
	var name string
	if IsSnapshotHash(hash) {
		var s *Snapshot
		if err := json.Unmarshal(text, &s); err != nil || s == nil {
			return ""
		}
		name = s.Name
	} else {
		parsed, err := Parse(text)
		if err != nil {
			return ""
		}
		name = parsed.Name
	}
	return cmp.Or(name, "default")
}
