package recipe

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Parse reads a recipe.md. Without a version, or with one that is too new,
// it is a *Error; settings that are not understood are left out, as in the
// original.
func Parse(text []byte) (*Recipe, error) {
	title, header, sections := split(string(text))
	version, err := versionOf(header)
	if err != nil {
		return nil, err
	}
	r := &Recipe{Version: version, Name: title}
	for _, s := range sections {
		r.section(strings.ToLower(s.title), s.lines)
	}
	return r, nil
}

// section is what stands under a heading.
type section struct {
	title string
	lines []string
}

func (s section) text() string { return strings.TrimSpace(strings.Join(s.lines, "\n")) }

// split returns the title, the lines above the first section, and the
// sections.
func split(text string) (title string, header []string, sections []section) {
	for line := range strings.SplitSeq(text, "\n") {
		if rest, ok := strings.CutPrefix(line, "# "); ok && title == "" {
			title = strings.TrimSpace(rest)
			continue
		}
		if rest, ok := strings.CutPrefix(line, "## "); ok {
			sections = append(sections, section{title: strings.TrimSpace(rest)})
			continue
		}
		if n := len(sections); n > 0 {
			sections[n-1].lines = append(sections[n-1].lines, line)
		} else {
			header = append(header, line)
		}
	}
	return title, header, sections
}

func versionOf(header []string) (int, error) {
	for _, line := range header {
		name, value, ok := strings.Cut(line, ":")
		if !ok || !strings.EqualFold(strings.TrimSpace(name), "version") {
			continue
		}
		n, err := strconv.Atoi(strings.TrimSpace(value))
		switch {
		case err != nil || n < 1:
			return 0, &Error{fmt.Sprintf("the version is %q, want a number from 1", strings.TrimSpace(value))}
		case n > MaxVersion:
			return 0, &Error{fmt.Sprintf("version %d is not supported, %d is the newest", n, MaxVersion)}
		}
		return n, nil
	}
	return 0, &Error{`the version is missing: "version: 1" stands above the first section`}
}

// section reads one section; those of other names say nothing here.
func (r *Recipe) section(title string, lines []string) {
	s := section{title, lines}
	switch title {
	case "models":
		r.Models = s.items()
	case "system prompt":
		r.SystemPrompt = s.text()
	case "tools":
		r.Tools = s.tools()
	case "mcp servers":
		r.MCPServers = s.servers()
	case "constraints":
		r.Constraints = s.constraints()
	case "context":
		r.Context = s.context()
	case "sandbox":
		r.Sandbox = s.sandbox()
	case "tasks":
		r.Tasks = s.items()
	case "success criteria":
		r.SuccessCriteria = s.items()
	case "tool descriptions":
		r.ToolDescriptions = nil
		for _, sub := range s.parts() {
			if r.ToolDescriptions == nil {
				r.ToolDescriptions = make(map[string]string)
			}
			r.ToolDescriptions[sub.title] = sub.text()
		}
	case "context summarization prompt":
		r.SummarizationPrompt = s.text()
	case "output processing":
		r.OutputProcessing = s.rules()
	}
}

// items returns the bullets of a list.
func (s section) items() []string {
	var list []string
	for _, line := range s.lines {
		if rest, ok := strings.CutPrefix(strings.TrimSpace(line), "- "); ok {
			if item := strings.TrimSpace(rest); item != "" {
				list = append(list, item)
			}
		}
	}
	return list
}

// values returns the lines "name: value", with or without a bullet.
func (s section) values() map[string]string {
	m := make(map[string]string)
	for _, line := range s.lines {
		name, value, ok := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "- "), ":")
		if name = strings.ToLower(strings.TrimSpace(name)); ok && name != "" {
			m[name] = strings.TrimSpace(value)
		}
	}
	return m
}

// parts returns what stands under headings of the third level.
func (s section) parts() []section {
	var list []section
	for _, line := range s.lines {
		if rest, ok := strings.CutPrefix(line, "### "); ok {
			list = append(list, section{title: strings.TrimSpace(rest)})
		} else if n := len(list); n > 0 {
			list[n-1].lines = append(list[n-1].lines, line)
		}
	}
	return list
}

// tools reads "- name", "- name: guidance" and "- bash(prefix, ...): guidance". A
// section without any is no tools at all.
func (s section) tools() *Tools {
	t := &Tools{Allowlist: []string{}}
	for _, item := range s.items() {
		name, guidance, _ := strings.Cut(item, ":")
		if inside, ok := strings.CutPrefix(item, "bash("); ok {
			list, rest, closed := strings.Cut(inside, ")")
			if !closed {
				t.Allowlist = append(t.Allowlist, item)
				continue
			}
			name, t.BashPrefixes = "bash", commaList(list)
			guidance, ok = strings.CutPrefix(rest, ":")
			if !ok {
				guidance = ""
			}
		}
		name, guidance = strings.TrimSpace(name), strings.TrimSpace(guidance)
		t.Allowlist = append(t.Allowlist, name)
		if guidance != "" {
			if t.Guidance == nil {
				t.Guidance = make(map[string]string)
			}
			t.Guidance[name] = guidance
		}
	}
	return t
}

func commaList(text string) []string {
	var list []string
	for item := range strings.SplitSeq(text, ",") {
		if item = strings.TrimSpace(item); item != "" {
			list = append(list, item)
		}
	}
	return list
}

func (s section) servers() []MCPServer {
	var list []MCPServer
	for _, item := range s.items() {
		name, command, _ := strings.Cut(item, ":")
		server := MCPServer{strings.TrimSpace(name), strings.TrimSpace(command)}
		if server.Name != "" && server.Command != "" {
			list = append(list, server)
		}
	}
	return list
}

func (s section) constraints() Constraints {
	v := s.values()
	return Constraints{MaxSteps: count(v["max_steps"]), Timeout: duration(v["timeout"]), BashTimeout: duration(v["bash_timeout"]), ProjectRoot: v["project_root"]}
}

func (s section) context() Context {
	v := s.values()
	c := Context{MaxHistoryTurns: count(v["max_history_turns"]), Strategy: among(v["strategy"], "auto_compact", "manual", "off"),
		TaskMode: among(v["task_mode"], "independent", "sequential")}
	if f, err := strconv.ParseFloat(v["compact_threshold"], 64); err == nil && f > 0 && f <= 1 {
		c.CompactThreshold = f
	}
	return c
}

func (s section) sandbox() Sandbox {
	v := s.values()
	return Sandbox{Filesystem: among(v["filesystem"], "unrestricted", "project_only", "read_only"), Network: among(v["network"], "full", "none"),
		AllowLocalFetch: strings.EqualFold(v["allow_local_fetch"], "true")}
}

func (s section) rules() map[string]OutputRule {
	var rules map[string]OutputRule
	for _, part := range s.parts() {
		v := part.values()
		if rules == nil {
			rules = make(map[string]OutputRule)
		}
		rules[part.title] = OutputRule{MaxLines: count(v["max_lines"]), MaxTokens: count(v["max_tokens"]),
			Truncation: among(v["truncation"], "head", "tail", "head_tail"), TruncationMessage: v["truncation_message"]}
	}
	return rules
}

// among returns a word if it is one of those allowed.
func among(word string, allowed ...string) string {
	if slices.Contains(allowed, word) {
		return word
	}
	return ""
}

// count reads a number that is not negative.
func count(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		return 0
	}
	return n
}

// duration reads a time such as 5m, or seconds.
func duration(text string) time.Duration {
	if d, err := time.ParseDuration(text); err == nil {
		return max(d, 0)
	}
	return time.Duration(min(count(text), 1<<32)) * time.Second
}

// plainFloat writes a float without an exponent.
func plainFloat(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }
