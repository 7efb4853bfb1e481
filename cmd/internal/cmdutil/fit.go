package cmdutil

import (
	"regexp"
	"strings"

	"github.com/tallylog/tally/internal/render"
)

// beside matches a line with text in a second column, such as a flag in a help text.
var beside = regexp.MustCompile(`^( +\S.*?  +)\S`)

// fit wraps a help text that is wider than the terminal: paragraphs flow, and text in a second column stays in it.
func fit(text string, width int) string {
	var b strings.Builder
	var paragraph []string
	flow := func() {
		for _, line := range flowed(paragraph, width) {
			b.WriteString(line + "\n")
		}
		paragraph = nil
	}
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if line != "" && line[0] != ' ' {
			paragraph = append(paragraph, line)
			continue
		}
		flow()
		for _, part := range hung(line, width) {
			b.WriteString(part + "\n")
		}
	}
	flow()
	return b.String()
}

// flowed returns the lines of a paragraph, unchanged if they fit.
func flowed(lines []string, width int) []string {
	for _, line := range lines {
		if len(line) > width {
			return render.Wrap(strings.Join(lines, " "), width)
		}
	}
	return lines
}

// hung wraps an indented line.
func hung(line string, width int) []string {
	if len(line) <= width {
		return []string{line}
	}
	indent := len(line) - len(strings.TrimLeft(line, " "))
	head, rest, hang := line[:indent], line[indent:], indent+4
	if m := beside.FindStringSubmatch(line); m != nil {
		head, rest = m[1], line[len(m[1]):]
		if hang = len(head); hang > width/2 { // too little room in the second column
			return append(hung(strings.TrimRight(head, " "), width), hung(strings.Repeat(" ", indent+4)+rest, width)...)
		}
	}
	if hang > width/2 {
		hang = 0
	}
	parts := render.Wrap(rest, width-max(len(head), hang))
	for i, part := range parts {
		if i == 0 {
			parts[i] = head + part
			continue
		}
		parts[i] = strings.Repeat(" ", hang) + part
	}
	return parts
}
