package recipe

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Parse parses a recipe.md. If the version is missing or too new, the error is an *Error. Unknown settings are
// ignored, as in the original.
func Parse(text []byte) (*Recipe, error) {
	lines := strings.Split(string(text), "\n")
	r := new(Recipe)
	lines = slices.DeleteFunc(lines, func(line string) bool {
		title, ok := strings.CutPrefix(line, "# ")
		if !ok || r.Name != "" {
			return false
		}
		r.Name = strings.TrimSpace(title)
		return true
	})
	header, sections := under("## ", lines)
	var err error
	if r.Version, err = versionOf(header); err != nil {
		return nil, err
	}
	for _, s := range sections { // sections with other names are ignored
		title := strings.ToLower(s.title)
		if i := slices.IndexFunc(parts, func(p recipePart) bool { return strings.ToLower(p.title) == title }); i >= 0 {
			parts[i].take(r, s)
		}
	}
	return r, nil
}

// section is the text below a heading.
type section struct {
	title string
	lines []string
}

// under returns the lines above the first heading of a level, and the sections of that level.
func under(heading string, lines []string) (above []string, sections []section) {
	for _, line := range lines {
		if title, ok := strings.CutPrefix(line, heading); ok {
			sections = append(sections, section{title: strings.TrimSpace(title)})
		} else if n := len(sections); n > 0 {
			sections[n-1].lines = append(sections[n-1].lines, line)
		} else {
			above = append(above, line)
		}
	}
	return above, sections
}

func (s section) text() string { return strings.TrimSpace(strings.Join(s.lines, "\n")) }

// parts returns the sections below headings of the third level.
func (s section) parts() []section {
	_, list := under("### ", s.lines)
	return list
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

// tools parses "- name", "- name: guidance" and "- bash(prefix, ...): guidance". An empty section allows no tools.
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

func (s section) rule() OutputRule {
	v := s.values()
	return OutputRule{MaxLines: count(v["max_lines"]), MaxTokens: count(v["max_tokens"]),
		Truncation: among(v["truncation"], "head", "tail", "head_tail"), TruncationMessage: v["truncation_message"]}
}

// byTitle parses the parts of a section, nil if it has none.
func byTitle[V any](s section, read func(section) V) map[string]V {
	var m map[string]V
	for _, part := range s.parts() {
		if m == nil {
			m = make(map[string]V)
		}
		m[part.title] = read(part)
	}
	return m
}

// among returns word if it is allowed, else "".
func among(word string, allowed ...string) string {
	if slices.Contains(allowed, word) {
		return word
	}
	return ""
}

// count parses a non-negative number.
func count(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		return 0
	}
	return n
}

// duration parses a time such as 5m, or seconds.
func duration(text string) time.Duration {
	if d, err := time.ParseDuration(text); err == nil {
		return max(d, 0)
	}
	return time.Duration(min(count(text), 1<<32)) * time.Second
}

// plainFloat formats a float without an exponent.
func plainFloat(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }
