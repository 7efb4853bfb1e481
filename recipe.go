package tally

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// RecipeVersion is the newest version of the recipe format that can be read.
const RecipeVersion = 1

// Recipe is the configuration of a panel, as a recipe.md has it. A zero field is
// not set.
type Recipe struct {
	Version             int
	Name                string
	Models              []string
	SystemPrompt        string
	Tools               *RecipeTools // nil: all tools
	MCPServers          []RecipeMCPServer
	Constraints         RecipeConstraints
	Context             RecipeContext
	Sandbox             RecipeSandbox
	Tasks               []string
	SuccessCriteria     []string
	ToolDescriptions    map[string]string
	SummarizationPrompt string
	OutputProcessing    map[string]RecipeOutputRule // by tool
}

// RecipeTools says which tools the models have.
type RecipeTools struct {
	Allowlist    []string // empty: none
	BashPrefixes []string // what bash commands may begin with; nil: anything
	Guidance     map[string]string
}

// RecipeMCPServer is a server that is started for the models.
type RecipeMCPServer struct{ Name, Command string }

// RecipeConstraints bound a run.
type RecipeConstraints struct {
	MaxSteps    int
	Timeout     time.Duration
	BashTimeout time.Duration
	ProjectRoot string
}

// RecipeContext says how histories are kept short.
type RecipeContext struct {
	MaxHistoryTurns  int
	Strategy         string  // auto_compact, manual or off
	CompactThreshold float64 // above 0, up to 1
	TaskMode         string  // independent or sequential
}

// RecipeSandbox bounds what the models can reach.
type RecipeSandbox struct {
	Filesystem      string // unrestricted, project_only or read_only
	Network         string // full or none
	AllowLocalFetch bool
}

// RecipeOutputRule cuts the output of a tool.
type RecipeOutputRule struct {
	MaxLines          int    `json:"max_lines,omitempty"`
	MaxTokens         int    `json:"max_tokens,omitempty"`
	Truncation        string `json:"truncation,omitempty"` // head, tail or head_tail
	TruncationMessage string `json:"truncation_message,omitempty"`
}

// RecipeError says what is wrong with a recipe.
type RecipeError struct{ Reason string }

func (e *RecipeError) Error() string { return "recipe: " + e.Reason }

// clone gives a copy that shares nothing with the recipe; nil of nil.
func (r *Recipe) clone() *Recipe {
	if r == nil {
		return nil
	}
	c, err := decodeRecipe(mustJSON(r))
	if err != nil {
		panic(fmt.Sprintf("tally: %v", err)) // it was written just now
	}
	return c
}

func decodeRecipe(data []byte) (*Recipe, error) {
	r := new(Recipe)
	return r, json.Unmarshal(data, r)
}

// Markdown writes the recipe in the normal form of recipe.md, from which its hash
// is taken. What is not set is left out, and so are, as in the original, the
// descriptions of tools, the rules for output and the task mode.
func (r *Recipe) Markdown() string {
	var b bytes.Buffer
	name := r.Name
	if name == "" {
		name = "Errata Recipe"
	}
	fmt.Fprintf(&b, "# %s\n", name)
	if r.Version > 0 {
		fmt.Fprintf(&b, "version: %d\n", r.Version)
	}
	section(&b, "Models", bullets(r.Models))
	section(&b, "System Prompt", prose(r.SystemPrompt))
	if r.Tools != nil {
		b.WriteString("\n## Tools\n")
		writeLines(&b, r.Tools.bullets())
	}
	var servers []string
	for _, s := range r.MCPServers {
		servers = append(servers, "- "+s.Name+": "+s.Command)
	}
	section(&b, "MCP Servers", servers)
	section(&b, "Constraints", r.Constraints.lines())
	section(&b, "Context", r.Context.lines())
	section(&b, "Sandbox", r.Sandbox.lines())
	section(&b, "Tasks", bullets(r.Tasks))
	section(&b, "Success Criteria", bullets(r.SuccessCriteria))
	section(&b, "Context Summarization Prompt", prose(r.SummarizationPrompt))
	return b.String()
}

// section writes a section, unless it has no lines.
func section(b *bytes.Buffer, title string, lines []string) {
	if len(lines) > 0 {
		fmt.Fprintf(b, "\n## %s\n", title)
		writeLines(b, lines)
	}
}

func writeLines(b *bytes.Buffer, lines []string) {
	for _, line := range lines {
		b.WriteString(line + "\n")
	}
}

func bullets(items []string) []string {
	var lines []string
	for _, item := range items {
		lines = append(lines, "- "+item)
	}
	return lines
}

func prose(text string) []string {
	if text == "" {
		return nil
	}
	return []string{text}
}

func (t *RecipeTools) bullets() []string {
	var lines []string
	for _, tool := range t.Allowlist {
		line := "- " + tool
		if tool == "bash" && len(t.BashPrefixes) > 0 {
			line += "(" + strings.Join(t.BashPrefixes, ", ") + ")"
		}
		if guidance := t.Guidance[tool]; guidance != "" {
			line += ": " + guidance
		}
		lines = append(lines, line)
	}
	return lines
}

// settings collects lines "name: value" of values that are set.
type settings []string

func (s *settings) add(set bool, name string, value any) {
	if set {
		*s = append(*s, fmt.Sprintf("%s: %v", name, value))
	}
}

func (c RecipeConstraints) lines() []string {
	var s settings
	s.add(c.Timeout > 0, "timeout", c.Timeout)
	s.add(c.BashTimeout > 0, "bash_timeout", c.BashTimeout)
	s.add(c.MaxSteps > 0, "max_steps", c.MaxSteps)
	s.add(c.ProjectRoot != "", "project_root", c.ProjectRoot)
	return s
}

func (c RecipeContext) lines() []string {
	var s settings
	s.add(c.MaxHistoryTurns > 0, "max_history_turns", c.MaxHistoryTurns)
	s.add(c.Strategy != "", "strategy", c.Strategy)
	s.add(c.CompactThreshold > 0, "compact_threshold", plainFloat(c.CompactThreshold))
	return s
}

func (c RecipeSandbox) lines() []string {
	var s settings
	s.add(c.Filesystem != "", "filesystem", c.Filesystem)
	s.add(c.Network != "", "network", c.Network)
	s.add(c.AllowLocalFetch, "allow_local_fetch", true)
	return s
}

// Hash identifies the configuration: rcp_ and the SHA-256 of its normal form. The
// models are no part of it.
func (r *Recipe) Hash() string {
	same := *r
	same.Models = nil
	return "rcp_" + hashOf([]byte(same.Markdown()))
}

// RecipeSnapshot is a configuration as the older generations of hashes have it.
type RecipeSnapshot struct {
	Version             int                         `json:"version,omitempty"`
	Name                string                      `json:"name"`
	SystemPrompt        string                      `json:"system_prompt,omitempty"`
	ToolGuidance        map[string]string           `json:"tool_guidance,omitempty"`
	Tools               []string                    `json:"tools,omitempty"` // of the last run
	BashPrefixes        []string                    `json:"bash_prefixes,omitempty"`
	ToolDescriptions    map[string]string           `json:"tool_descriptions,omitempty"`
	Constraints         *SnapshotConstraints        `json:"constraints,omitempty"`
	Context             *SnapshotContext            `json:"context,omitempty"`
	OutputProcessing    map[string]RecipeOutputRule `json:"output_processing,omitempty"`
	SummarizationPrompt string                      `json:"summarization_prompt,omitempty"`
}

// SnapshotConstraints are the constraints in a RecipeSnapshot.
type SnapshotConstraints struct {
	MaxSteps int    `json:"max_steps,omitempty"`
	Timeout  string `json:"timeout,omitempty"`
}

// SnapshotContext is the context in a RecipeSnapshot.
type SnapshotContext struct {
	MaxHistoryTurns  int     `json:"max_history_turns,omitempty"`
	Strategy         string  `json:"strategy,omitempty"`
	CompactThreshold float64 `json:"compact_threshold,omitempty"`
	TaskMode         string  `json:"task_mode,omitempty"`
}

// Snapshot gives a recipe together with the tools that were active. Without a
// recipe there is only the name: default.
func (r *Recipe) Snapshot(tools []string) RecipeSnapshot {
	s := RecipeSnapshot{Name: "default", Tools: slices.Clone(tools)}
	if r == nil {
		return s
	}
	c := r.clone()
	if c.Name != "" {
		s.Name = c.Name
	}
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

// ConfigHash identifies the snapshot as the first generation did: cfg_v, the
// version, and the SHA-256 of its JSON without the name.
func (s RecipeSnapshot) ConfigHash() string {
	s.Name = ""
	return fmt.Sprintf("cfg_v%d_%s", s.Version, hashOf(mustJSON(s)))
}

// VersionedHash identifies the snapshot as the second generation did: rcp_v, the
// version, and the SHA-256 of its JSON.
func (s RecipeSnapshot) VersionedHash() string {
	return fmt.Sprintf("rcp_v%d_%s", s.Version, hashOf(mustJSON(s)))
}
