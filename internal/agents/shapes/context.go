package shapes

import (
	"regexp"
	"slices"
	"strings"
)

// Editors and agents put into a message of the user what they want the model to know: blocks
// in tags, or a heading with what is open in the editor. None of it is a word of the person.

// contextTags are the tags of such blocks.
var contextTags = []string{
	"ide_opened_file", "ide_selection", "ide_diagnostics", "ide_context", "system-reminder", "local-command-caveat", "user-prompt-submit-hook", "post-tool-use-hook",
	"open_and_recently_viewed_files", "attached_files", "additional_data", "user_info", "project_layout", "git_status", "timestamp", "environment_details",
	"environment_context", "user_instructions", "session_context", "hook_context",
}

// queryTag is the tag in which Cursor puts what the person wrote.
const queryTag = "user_query"

// editorHeadings are how messages begin in which an editor tells what is open before the
// request of the person, and request is the heading of that.
var (
	editorHeadings = []string{"# Context from my IDE setup:", "# Files mentioned by the user:"}
	request        = regexp.MustCompile(`(?m)^## My request(?: for [\w ]+)?:?[ \t]*\r?$\n?`)
)

// geminiContext is how a message begins with which Gemini CLI tells what is open in the editor.
const geminiContext = "Here is the user's editor context as a JSON object."

// Words returns what a person wrote of a message of the user, without what programs put into
// it: "" if they wrote all of it.
func Words(text string) string {
	_, words := spoken(text)
	return words
}

// spoken tells what programs put into a message of the user, piece by piece, from what the
// person wrote. A message of the person alone is returned as it is.
func spoken(text string) (context []string, words string) {
	before, words := leading(text)
	words, after := trailing(words)
	context = append(before, after...)
	if inside, rest, ok := block(words, queryTag); ok && strings.TrimSpace(rest) == "" {
		return context, strings.TrimSpace(inside)
	}
	if len(context) == 0 {
		return nil, text
	}
	return context, strings.TrimSpace(words)
}

// leading takes the blocks with which a text begins.
func leading(text string) (context []string, rest string) {
	for rest = text; ; {
		piece, after, ok := piece(strings.TrimLeft(rest, " \t\r\n"))
		if !ok {
			return context, rest
		}
		context, rest = append(context, piece), after
	}
}

// piece takes what a program wrote from the beginning of a text.
func piece(text string) (piece, rest string, ok bool) {
	for _, tag := range contextTags {
		if _, rest, ok := block(text, tag); ok {
			return text[:len(text)-len(rest)], rest, true
		}
	}
	hasPrefix := func(heading string) bool { return strings.HasPrefix(text, heading) }
	if slices.ContainsFunc(editorHeadings, hasPrefix) {
		if at := request.FindStringIndex(text); at != nil {
			return strings.TrimSpace(text[:at[0]]), text[at[1]:], true
		}
	}
	if hasPrefix(geminiContext) {
		if _, fenced, ok := strings.Cut(text, "```json"); ok {
			if _, rest, ok := strings.Cut(fenced, "\n```"); ok {
				return text[:len(text)-len(rest)], rest, true
			}
		}
	}
	return "", text, false
}

// block takes a block in a tag from the beginning of a text.
func block(text, tag string) (inside, rest string, ok bool) {
	text = strings.TrimLeft(text, " \t\r\n")
	after, ok := strings.CutPrefix(text, "<"+tag)
	if !ok || after == "" || !strings.ContainsRune("> \t\r\n", rune(after[0])) {
		return "", text, false
	}
	_, after, ok = strings.Cut(after, ">")
	if !ok {
		return "", text, false
	}
	inside, rest, ok = strings.Cut(after, "</"+tag+">")
	return inside, rest, ok
}

// trailing takes the blocks with which a text ends.
func trailing(text string) (rest string, context []string) {
	for rest = text; ; {
		end := strings.TrimRight(rest, " \t\r\n")
		i := slices.IndexFunc(contextTags, func(tag string) bool { return strings.HasSuffix(end, "</"+tag+">") })
		if i < 0 {
			return rest, context
		}
		start := strings.LastIndex(end, "<"+contextTags[i])
		if _, left, ok := block(end[max(start, 0):], contextTags[i]); start < 0 || !ok || left != "" {
			return rest, context
		}
		context = slices.Insert(context, 0, end[start:])
		rest = end[:start]
	}
}

// Separate gives those parts of a message of the user another role that programs wrote. start
// is where its parts begin.
func (r *Reading) Separate(start int, role string) {
	if !slices.ContainsFunc(r.Turn.Parts[start:], func(p Part) bool { return p.Kind == Said && p.Role == "user" }) {
		return
	}
	parts := slices.Clone(r.Turn.Parts[start:])
	r.Turn.Parts = r.Turn.Parts[:start]
	for _, p := range parts {
		if p.Kind != Said || p.Role != "user" {
			r.Add(p)
			continue
		}
		context, words := spoken(p.Text)
		for _, piece := range context {
			r.Add(Part{Role: role, Text: strings.TrimSpace(piece)})
		}
		if p.Text = words; words != "" || len(context) == 0 {
			r.Add(p)
		}
	}
}
