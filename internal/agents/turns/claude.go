package turns

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
)

// The lines of Claude Code's transcripts: around a message of Anthropic, or what the
// program notes, stand members that say where and when it was.

// claudeLine is the name under which [quietNames] has the members of a line.
const claudeLine = "claude-line"

// isClaudeLine recognises a line by its type and by what such a line must have.
func isClaudeLine(o *object) bool {
	switch o.word("type") {
	case "user", "assistant":
		return o.isObject("message") && o.has("uuid", "sessionId", "session_id")
	case "system":
		return o.word("subtype") != "" && o.has("uuid")
	case "progress":
		return o.isObject("data") && o.has("uuid")
	case "attachment":
		return o.isObject("attachment") && o.has("uuid")
	case "file-history-snapshot":
		return o.isObject("snapshot")
	case "result": // of what was printed
		return o.word("subtype") != "" && o.has("session_id")
	case "queue-operation":
		return o.word("operation") != "" && o.has("sessionId")
	}
	return claudeWords[o.word("type")] != "" && o.has("sessionId", "leafUuid")
}

// readClaudeLine reads a line, or one inside of one, which has fewer members around it.
func readClaudeLine(r *reading, o *object) {
	r.by("claude-code")
	if o.name == "" {
		o.name = claudeLine
	}
	kind := o.word("type")
	switch kind {
	case "user", "assistant":
		readClaudeMessage(r, kind, o)
	case "system":
		readClaudeSystem(r, o)
	case "progress":
		readClaudeProgress(r, o)
	case "attachment":
		readClaudeAttachment(r, o)
	case "file-history-snapshot":
		readClaudeSnapshot(r, o)
	case "result":
		readClaudeResult(r, o)
	case "queue-operation":
		r.add(unnamed(Part{Role: "queue", Name: o.text("operation"), Text: o.value("content")}))
	default:
		r.add(Part{Role: kind, Text: o.text(claudeWords[kind])})
	}
	r.leave(kind, o)
}

// readClaudeResult reads how a run ended, as is printed.
func readClaudeResult(r *reading, o *object) {
	p := Part{Role: "result", Name: o.text("subtype"), Text: o.text("result")}
	if o.isTrue("is_error") || p.Name != "success" {
		p.Role = "error"
	}
	r.add(unnamed(p))
}

// claudeWords are the members of lines that say one thing.
var claudeWords = map[string]string{
	"summary": "summary", "ai-title": "aiTitle", "custom-title": "customTitle", "tag": "tag", "agent-name": "agentName", "last-prompt": "lastPrompt",
}

// readClaudeMessage reads what the person, the model or a tool said. What the program
// wrote in the person's place is said by nobody: meta, or the summary of a conversation.
func readClaudeMessage(r *reading, kind string, o *object) {
	role := kind
	switch {
	case o.isTrue("isCompactSummary"):
		role = "summary"
	case o.isTrue("isMeta", "isVisibleInTranscriptOnly"):
		role = "meta"
	}
	start := len(r.turn.Parts)
	m, _ := open("", o.take("message"))
	m.take("role")
	if r.turn.Response == "" {
		r.turn.Response = m.text("id")
	}
	readSpoken(r, role, m)
	r.separate(start, "meta")
	for i, p := range r.turn.Parts[start:] {
		if p.Kind == Said && role == "user" {
			r.turn.Parts[start+i] = local(p)
		}
	}
}

// readClaudeSystem reads what the program says: a text, how long a turn took, or that
// something happened.
func readClaudeSystem(r *reading, o *object) {
	p := Part{Role: "system", Name: o.text("subtype"), Text: o.text("content")}
	if took := o.count("durationMs"); took > 0 && p.Text == "" {
		p.Text = (time.Duration(min(took, maxMilliseconds)) * time.Millisecond).String()
	}
	r.add(local(unnamed(p)))
}

// maxMilliseconds is the longest time that is shown as one.
const maxMilliseconds = int64(1<<63-1) / int64(time.Millisecond)

// unnamed lets the name of something that has no text be its text.
func unnamed(p Part) Part {
	if p.Text == "" {
		p.Name, p.Text = "", p.Name
	}
	return p
}

// readClaudeProgress reads what a tool, a hook or a sub-agent reports while it works. What
// a response of a sub-agent took stands in its own transcript.
func readClaudeProgress(r *reading, o *object) {
	data, _ := open("", o.take("data"))
	p := Part{Role: "progress", Name: data.text("type"), Text: data.text("fullOutput", "output", "command")}
	r.add(unnamed(p))
	if line, ok := open("message", data.peek("message")); ok && isClaudeLine(line) && r.depth < maxDepth {
		data.take("message")
		r.depth++
		readClaudeLine(r, line)
		r.depth--
		r.turn.Response, r.turn.Usage, r.turn.Terms = "", events.Tokens{}, events.Terms{}
	}
	r.leave("progress", data)
}

// readClaudeAttachment reads what the program gave the model beside what was said. A prompt
// that waited until the model could take it is the person's.
func readClaudeAttachment(r *reading, o *object) {
	a, _ := open("attachment", o.take("attachment"))
	name := a.text("type")
	if name == "queued_command" && a.has("prompt") {
		prompt, start := a.take("prompt"), len(r.turn.Parts)
		if list, err := rawjson.Array(prompt); err == nil {
			readBlocks(r, "user", list)
		} else {
			r.add(Part{Role: "user", Text: words(prompt)})
		}
		r.separate(start, "meta")
	} else {
		r.add(unnamed(Part{Role: "attachment", Name: name, Text: a.text("content", "text")}))
	}
	r.leave("attachment", a)
}

// readClaudeSnapshot reads of which files there are copies as they were before a prompt.
func readClaudeSnapshot(r *reading, o *object) {
	snapshot, _ := open("", o.peek("snapshot"))
	files, _ := rawjson.Object(snapshot.peek("trackedFileBackups"))
	names := make([]string, len(files))
	for i, f := range files {
		names[i] = f.Name
	}
	slices.Sort(names)
	r.add(Part{Role: "snapshot", Text: cmp.Or(strings.Join(names, ", "), "no files")})
}

// local reads what stands for a command that the program ran itself, and for what that
// printed: Claude Code writes both as messages, in tags. A text with anything beside the
// tags stays as it is.
func local(p Part) Part {
	tags, ok := tagged(p.Text)
	if !ok {
		return p
	}
	switch {
	case tags["command-name"] != "":
		p.Text = commandLine(tags["command-name"], tags["command-args"], tags["command-message"])
	case tags["bash-input"] != "":
		p.Text = "! " + tags["bash-input"]
	case tags["command-message"]+tags["command-args"] != "":
		return p // of no command
	default:
		p.Kind = Result
		p.Text = join(tags["local-command-stdout"]+tags["bash-stdout"], tags["local-command-stderr"]+tags["bash-stderr"])
	}
	return p
}

// commandLine is a command as it was typed. The message is the name again, or more.
func commandLine(name, args, message string) string {
	line := strings.TrimSpace(name + " " + args)
	if !strings.Contains(line, message) {
		line += " (" + message + ")"
	}
	return line
}

// tagSets are the tags that stand together.
var tagSets = [][]string{
	{"command-name", "command-message", "command-args"}, {"bash-input"}, {"bash-stdout", "bash-stderr"}, {"local-command-stdout"}, {"local-command-stderr"},
}

// tagged reads a text that is tags of one set and nothing else, each at most once.
func tagged(text string) (map[string]string, bool) {
	for _, set := range tagSets {
		found, rest := make(map[string]string), strings.TrimSpace(text)
		for name, inside, ok := "", "", true; ok; found[name] = inside {
			if rest == "" {
				return found, len(found) > 0
			}
			if name, inside, rest, ok = cutTag(rest, set); !ok {
				break
			}
			if _, twice := found[name]; twice {
				break
			}
		}
	}
	return nil, false
}

// cutTag takes the tag that a text begins with.
func cutTag(text string, set []string) (name, inside, rest string, ok bool) {
	for _, name := range set {
		if after, is := strings.CutPrefix(text, "<"+name+">"); is {
			inside, rest, ok := strings.Cut(after, "</"+name+">")
			return name, strings.TrimSpace(inside), strings.TrimSpace(rest), ok
		}
	}
	return "", "", "", false
}

// isObject reports whether a member is an object.
func (o *object) isObject(name string) bool {
	_, err := rawjson.Object(o.peek(name))
	return err == nil
}
