package faults

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// A file is the part of a unified diff for one file.
type file struct {
	name          string
	isNew, isGone bool
	hunks         []hunk
}

// A hunk replaces lines, which include their line endings.
type hunk struct {
	line     int // of the old file, from 0
	old, new []string
}

var hunkHead = regexp.MustCompile(`^@@ -(\d+)(?:,(\d+))? \+\d+(?:,(\d+))? @@`)

// parse parses a unified diff, as git diff writes it.
func parse(diff string) (files []file, err error) {
	lines := slices.Collect(strings.Lines(diff))
	for i := 0; i < len(lines); {
		switch line := lines[i]; {
		case strings.HasPrefix(line, "--- ") && i+1 < len(lines) && strings.HasPrefix(lines[i+1], "+++ "):
			files = append(files, fileOf(pathOf(line), pathOf(lines[i+1])))
			i += 2
		case strings.HasPrefix(line, "@@ ") && len(files) > 0:
			h, n, err := parseHunk(lines[i:])
			if err != nil {
				return nil, fmt.Errorf("line %d of the diff: %w", i+1, err)
			}
			f := &files[len(files)-1]
			f.hunks = append(f.hunks, h)
			i += n
		case strings.HasPrefix(line, "diff --git ") || strings.HasPrefix(line, "index ") || strings.HasPrefix(line, "new file mode ") ||
			strings.HasPrefix(line, "deleted file mode ") || strings.TrimSpace(line) == "":
			i++
		default:
			return nil, fmt.Errorf("line %d of the diff: %q is not part of a unified diff", i+1, strings.TrimSpace(line))
		}
	}
	if len(files) == 0 {
		return nil, errors.New("there is no diff")
	}
	return files, nil
}

const nothing = "/dev/null" // instead of a path, for a missing file

func pathOf(line string) string {
	name, _, _ := strings.Cut(strings.TrimSpace(line[len("--- "):]), "\t")
	if name == nothing {
		return name
	}
	_, name, _ = strings.Cut(name, "/") // a/ or b/
	return name
}

func fileOf(before, after string) file {
	f := file{name: after, isNew: before == nothing, isGone: after == nothing}
	if f.isGone {
		f.name = before
	}
	return f
}

// parseHunk parses the hunk at the start of lines, and returns its number of lines.
func parseHunk(lines []string) (h hunk, n int, err error) {
	m := hunkHead.FindStringSubmatch(lines[0])
	if m == nil {
		return h, 0, fmt.Errorf("%q does not begin a hunk", strings.TrimSpace(lines[0]))
	}
	line, old, new := count(m[1]), count(m[2]), count(m[3])
	h.line = max(line-1, 0)
	for n = 1; len(h.old) < old || len(h.new) < new; n++ {
		if n == len(lines) {
			return h, n, errors.New("the hunk is shorter than it says")
		}
		kind, text := lines[n][0], lines[n][1:]
		if kind == '\n' { // an empty line, whose space an editor removed
			kind, text = ' ', "\n"
		}
		if kind != ' ' && kind != '-' && kind != '+' {
			return h, n, fmt.Errorf("%q is not a line of a hunk", strings.TrimSpace(lines[n]))
		}
		if kind != '+' {
			h.old = append(h.old, text)
		}
		if kind != '-' {
			h.new = append(h.new, text)
		}
	}
	if len(h.old) != old || len(h.new) != new {
		return h, n, errors.New("the hunk is longer than it says")
	}
	return h, n, nil
}

// count returns a number of a hunk's head; a missing one is 1.
func count(text string) int {
	if text == "" {
		return 1
	}
	n, _ := strconv.Atoi(text) // the expression matches only digits
	return n
}

// apply returns a text with the hunks applied. A hunk's old lines must occur exactly; they may have moved, if they
// occur only once.
func (f *file) apply(text string) (string, error) {
	lines := slices.Collect(strings.Lines(text))
	from, drift := 0, 0 // where the last hunk ended, and how far it had moved
	for i, h := range f.hunks {
		at, err := h.find(lines, from, h.line+drift)
		if err != nil {
			return "", fmt.Errorf("hunk %d: %w", i+1, err)
		}
		lines = slices.Concat(lines[:at], h.new, lines[at+len(h.old):])
		from, drift = at+len(h.new), at-h.line+len(h.new)-len(h.old)
	}
	after := strings.Join(lines, "")
	if after == text {
		return "", errors.New("it changes nothing")
	}
	return after, nil
}

// find returns the position of the hunk's old lines at or after a line.
func (h *hunk) find(lines []string, from, meant int) (int, error) {
	var found []int
	for at := from; at+len(h.old) <= len(lines); at++ {
		if slices.Equal(lines[at:at+len(h.old)], h.old) {
			found = append(found, at)
		}
	}
	switch {
	case len(found) == 1:
		return found[0], nil
	case slices.Contains(found, meant):
		return meant, nil
	case len(found) == 0:
		return 0, errors.New("its lines are not in the file")
	}
	return 0, fmt.Errorf("its lines are in the file %d times", len(found))
}
