package cmdutil

import (
	"regexp"
	"strings"

	"github.com/tallylog/tally/internal/render"
)

// beside is a line that says something in its second column, such as a flag of a help.
var beside = regexp.MustCompile(`^( +\S.*?  +)\S`)

// fit lays a help out anew where it is wider than the terminal: paragraphs flow, and what
// stands in a second column goes on in it.
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

// flowed returns the lines of a paragraph: as they are, if they fit.
func flowed(lines []string, width int) []string {
	for _, line := range lines {
		if len(line) > width {
			return render.Wrap(strings.Join(lines, " "), width)
		}
	}
	return lines
}

// hung returns a line that is indented in lines that are as wide as they may be.
func hung(line string, width int) []string {
	if len(line) <= width {
		return []string{line}
	}
	indent := len(line) - len(strings.TrimLeft(line, " "))
	head, rest, hang := line[:indent], line[indent:], indent+4
	if m := beside.FindStringSubmatch(line); m != nil {
		head, rest = m[1], line[len(m[1]):]
		if hang = len(head); hang > width/2 { // too little room beside it
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
