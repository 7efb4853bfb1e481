// Package recipe reads and writes the configurations of panels of models, and computes their hashes.
package recipe

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// MaxVersion is the newest supported version of the format.
const MaxVersion = 1

// Recipe is the configuration of a panel, in the form of recipe.md. A zero field is not set.
type Recipe struct {
	Version             int
	Name                string
	Models              []string
	SystemPrompt        string
	Tools               *Tools // nil: all tools
	MCPServers          []MCPServer
	Constraints         Constraints
	Context             Context
	Sandbox             Sandbox
	Tasks               []string
	SuccessCriteria     []string
	ToolDescriptions    map[string]string
	SummarizationPrompt string
	OutputProcessing    map[string]OutputRule // by tool
}

// Tools are the tools of the models.
type Tools struct {
	Allowlist    []string // empty: none
	BashPrefixes []string // allowed prefixes of bash commands; nil: any
	Guidance     map[string]string
}

// MCPServer is a server that is started for the models.
type MCPServer struct{ Name, Command string }

// Constraints limit a run.
type Constraints struct {
	MaxSteps    int
	Timeout     time.Duration
	BashTimeout time.Duration
	ProjectRoot string
}

// Context configures how histories are kept short.
type Context struct {
	MaxHistoryTurns  int
	Strategy         string  // auto_compact, manual or off
	CompactThreshold float64 // above 0, up to 1
	TaskMode         string  // independent or sequential
}

// Sandbox limits the resources that the models can reach.
type Sandbox struct {
	Filesystem      string // unrestricted, project_only or read_only
	Network         string // full or none
	AllowLocalFetch bool
}

// OutputRule truncates the output of a tool.
type OutputRule struct {
	MaxLines          int    `json:"max_lines,omitempty"`
	MaxTokens         int    `json:"max_tokens,omitempty"`
	Truncation        string `json:"truncation,omitempty"` // head, tail or head_tail
	TruncationMessage string `json:"truncation_message,omitempty"`
}

// Error describes an invalid recipe.
type Error struct{ Reason string }

func (e *Error) Error() string { return "recipe: " + e.Reason }

// Clone returns a deep copy of the recipe, nil for nil.
func (r *Recipe) Clone() *Recipe {
	if r == nil {
		return nil
	}
	c, err := Decode(r.Encode())
	if err != nil {
		panic(fmt.Sprintf("recipe: %v", err)) // Encode's output always decodes
	}
	return c
}

// Encode returns the whole recipe as JSON, including the members that markdown cannot express.
func (r *Recipe) Encode() []byte { return mustJSON(r) }

// Decode decodes the output of Encode, or else markdown.
func Decode(data []byte) (*Recipe, error) {
	if len(data) == 0 || data[0] != '{' {
		return Parse(data)
	}
	r := new(Recipe)
	return r, json.Unmarshal(data, r)
}

// Markdown returns the recipe in the normal form of recipe.md, from which its hash is computed. It omits unset
// members and, as in the original, the descriptions of tools, the rules for output and the task mode.
func (r *Recipe) Markdown() string {
	var b bytes.Buffer
	fmt.Fprintf(&b, "# %s\n", cmp.Or(r.Name, "Errata Recipe"))
	if r.Version > 0 {
		fmt.Fprintf(&b, "version: %d\n", r.Version)
	}
	for _, part := range parts {
		lines := part.lines(r)
		if lines == nil {
			continue
		}
		fmt.Fprintf(&b, "\n## %s\n", part.title)
		for _, line := range lines {
			b.WriteString(line + "\n")
		}
	}
	return b.String()
}

// recipePart is a section of recipe.md.
type recipePart struct {
	title string
	lines func(*Recipe) []string // the lines to write; nil: no section
	take  func(*Recipe, section) // reads the section
}

// parts are the sections in the order of writing. The last two are only read.
var parts = []recipePart{
	{"Models", func(r *Recipe) []string { return bullets(r.Models) }, func(r *Recipe, s section) { r.Models = s.items() }},
	{"System Prompt", func(r *Recipe) []string { return prose(r.SystemPrompt) }, func(r *Recipe, s section) { r.SystemPrompt = s.text() }},
	{"Tools", func(r *Recipe) []string { return r.Tools.lines() }, func(r *Recipe, s section) { r.Tools = s.tools() }},
	{"MCP Servers", (*Recipe).servers, func(r *Recipe, s section) { r.MCPServers = s.servers() }},
	{"Constraints", func(r *Recipe) []string { return r.Constraints.lines() }, func(r *Recipe, s section) { r.Constraints = s.constraints() }},
	{"Context", func(r *Recipe) []string { return r.Context.lines() }, func(r *Recipe, s section) { r.Context = s.context() }},
	{"Sandbox", func(r *Recipe) []string { return r.Sandbox.lines() }, func(r *Recipe, s section) { r.Sandbox = s.sandbox() }},
	{"Tasks", func(r *Recipe) []string { return bullets(r.Tasks) }, func(r *Recipe, s section) { r.Tasks = s.items() }},
	{"Success Criteria", func(r *Recipe) []string { return bullets(r.SuccessCriteria) }, func(r *Recipe, s section) { r.SuccessCriteria = s.items() }},
	{"Context Summarization Prompt", func(r *Recipe) []string { return prose(r.SummarizationPrompt) },
		func(r *Recipe, s section) { r.SummarizationPrompt = s.text() }},
	{"Tool Descriptions", unwritten, func(r *Recipe, s section) { r.ToolDescriptions = byTitle(s, section.text) }},
	{"Output Processing", unwritten, func(r *Recipe, s section) { r.OutputProcessing = byTitle(s, section.rule) }},
}

func unwritten(*Recipe) []string { return nil }

func (r *Recipe) servers() []string {
	var lines []string
	for _, s := range r.MCPServers {
		lines = append(lines, "- "+s.Name+": "+s.Command)
	}
	return lines
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

// lines returns nil if there is no section, which differs from an empty one.
func (t *Tools) lines() []string {
	if t == nil {
		return nil
	}
	lines := []string{}
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

// settings collects lines "name: value" of the set values.
type settings []string

func (s *settings) add(set bool, name string, value any) {
	if set {
		*s = append(*s, fmt.Sprintf("%s: %v", name, value))
	}
}

func (c Constraints) lines() []string {
	var s settings
	s.add(c.Timeout > 0, "timeout", c.Timeout)
	s.add(c.BashTimeout > 0, "bash_timeout", c.BashTimeout)
	s.add(c.MaxSteps > 0, "max_steps", c.MaxSteps)
	s.add(c.ProjectRoot != "", "project_root", c.ProjectRoot)
	return s
}

func (c Context) lines() []string {
	var s settings
	s.add(c.MaxHistoryTurns > 0, "max_history_turns", c.MaxHistoryTurns)
	s.add(c.Strategy != "", "strategy", c.Strategy)
	s.add(c.CompactThreshold > 0, "compact_threshold", plainFloat(c.CompactThreshold))
	return s
}

func (c Sandbox) lines() []string {
	var s settings
	s.add(c.Filesystem != "", "filesystem", c.Filesystem)
	s.add(c.Network != "", "network", c.Network)
	s.add(c.AllowLocalFetch, "allow_local_fetch", true)
	return s
}

// Hash returns the id of the configuration: rcp_ and the SHA-256 of its normal form. The models are not part of it.
func (r *Recipe) Hash() string {
	same := *r
	same.Models = nil
	return "rcp_" + hashOf([]byte(same.Markdown()))
}

// TextHash returns the hash of a recipe in markdown: that of the configuration, for any spelling, or of the bytes if
// they cannot be parsed.
func TextHash(text []byte) string {
	r, err := Parse(text)
	if err != nil {
		return "rcp_" + hashOf(text)
	}
	return r.Hash()
}

func hashOf(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

// mustJSON returns a value in the original's JSON. It panics only for a NaN or an infinite number.
func mustJSON(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("recipe: %v", err))
	}
	return data
}
