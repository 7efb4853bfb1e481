package shapes

import (
	"regexp"
	"slices"
	"strings"
)

// Editors and agents add context for the model to a user's message: blocks in tags, or a heading with the open files.
// The user wrote none of it.

// contextTags are the tags of such blocks.
var contextTags = []string{
	"ide_opened_file", "ide_selection", "ide_diagnostics", "ide_context", "system-reminder", "local-command-caveat", "user-prompt-submit-hook", "post-tool-use-hook",
	"open_and_recently_viewed_files", "attached_files", "additional_data", "user_info", "project_layout", "git_status", "timestamp", "environment_details",
	"environment_context", "user_instructions", "session_context", "hook_context",
}

// queryTag is the tag that Cursor puts around the user's own text.
const queryTag = "user_query"

// editorHeadings begin messages in which an editor lists the open files before the user's request. request is the
// heading of that request.
var (
	editorHeadings = []string{"# Context from my IDE setup:", "# Files mentioned by the user:"}
	request        = regexp.MustCompile(`(?m)^## My request(?: for [\w ]+)?:?[ \t]*\r?$\n?`)
)

// geminiContext begins a message with the editor's context from Gemini CLI.
const geminiContext = "Here is the user's editor context as a JSON object."

// Words returns the user's own text in a user's message, without the text that programs added: "" if programs wrote
// all of it.
func Words(text string) string {
	_, words := spoken(text)
	return words
}

// spoken separates the text that programs added to a user's message, piece by piece, from the user's own text. A
// message without such text is returned as it is.
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

// leading cuts the blocks at the beginning of a text.
func leading(text string) (context []string, rest string) {
	for rest = text; ; {
		piece, after, ok := cutPiece(strings.TrimLeft(rest, " \t\r\n"))
		if !ok {
			return context, rest
		}
		context, rest = append(context, piece), after
	}
}

// cutPiece cuts one block, or one heading with its list, from the beginning of a text.
func cutPiece(text string) (piece, rest string, ok bool) {
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

// block cuts a block with a tag from the beginning of a text.
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

// trailing cuts the blocks at the end of a text.
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

// Separate sets the role of those parts of a user's message that programs wrote. The parts of the message begin at
// index start.
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
