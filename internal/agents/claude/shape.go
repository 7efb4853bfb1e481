package claude

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/agents/shapes"
	"github.com/tallylog/tally/internal/rawjson"
)

// The lines of Claude Code's transcripts: a message of Anthropic, or a note of the program, with members for its
// place and time.

// Line is the shape of a line.
var Line = shapes.Shape{Name: "claude-code", Is: isLine, Read: readLine, Quiet: quiet, Kept: true}

// quiet has the members of a line without text of a speaker.
var quiet = shapes.Names(`
	parentUuid logicalParentUuid leafUuid sourceToolAssistantUUID toolUseID parentToolUseID sourceToolUseID
	toolUseResult cwd gitBranch version slug userType entrypoint permissionMode level thinkingMetadata todos
	origin tool_use_result modelUsage terminal_reason fast_mode_state forkedFrom snapshot compactMetadata`)

// isLine recognises a line by its type and its required members.
func isLine(o *shapes.Object) bool {
	switch o.Word("type") {
	case "user", "assistant":
		return o.IsObject("message") && o.Has("uuid", "sessionId", "session_id")
	case "system":
		return o.Word("subtype") != "" && o.Has("uuid")
	case "progress":
		return o.IsObject("data") && o.Has("uuid")
	case "attachment":
		return o.IsObject("attachment") && o.Has("uuid")
	case "file-history-snapshot":
		return o.IsObject("snapshot")
	case "result": // of printed output
		return o.Word("subtype") != "" && o.Has("session_id")
	case "queue-operation":
		return o.Word("operation") != "" && o.Has("sessionId")
	}
	return wordOf[o.Word("type")] != "" && o.Has("sessionId", "leafUuid")
}

// readLine reads a line, or a line inside a line, which has fewer members.
func readLine(r *shapes.Reading, o *shapes.Object) {
	r.By("claude-code")
	kind := o.Word("type")
	switch kind {
	case "user", "assistant":
		readMessage(r, kind, o)
	case "system":
		readSystem(r, o)
	case "progress":
		readProgress(r, o)
	case "attachment":
		readAttachment(r, o)
	case "file-history-snapshot":
		readSnapshot(r, o)
	case "result":
		readResult(r, o)
	case "queue-operation":
		r.Add(unnamed(shapes.Part{Role: "queue", Name: o.Text("operation"), Text: o.Value("content")}))
	default:
		r.Add(shapes.Part{Role: kind, Text: o.Text(wordOf[kind])})
	}
	r.Leave(kind, o)
}

// readResult reads the end of a run in printed output.
func readResult(r *shapes.Reading, o *shapes.Object) {
	p := shapes.Part{Role: "result", Name: o.Text("subtype"), Text: o.Text("result")}
	if o.IsTrue("is_error") || p.Name != "success" {
		p.Role = "error"
	}
	r.Add(unnamed(p))
}

// readMessage reads a message of the user, the model or a tool. A text that the program wrote in the user's name has
// the role meta or summary.
func readMessage(r *shapes.Reading, kind string, o *shapes.Object) {
	role := cmp.Or(instead(o.Members), kind)
	start := len(r.Turn.Parts)
	m, _ := shapes.Open("", o.Take("message"))
	m.Take("role")
	if r.Turn.Response == "" {
		r.Turn.Response = m.Text("id")
	}
	shapes.ReadSpoken(r, role, m)
	r.Separate(start, "meta")
	for i, p := range r.Turn.Parts[start:] {
		if p.Kind == shapes.Said && role == "user" {
			r.Turn.Parts[start+i] = local(p)
		}
	}
}

// readSystem reads a message of the program: a text, the duration of a turn, or an event.
func readSystem(r *shapes.Reading, o *shapes.Object) {
	p := shapes.Part{Role: "system", Name: o.Text("subtype"), Text: o.Text("content")}
	if took := o.Count("durationMs"); took > 0 && p.Text == "" {
		p.Text = (time.Duration(min(took, maxMilliseconds)) * time.Millisecond).String()
	}
	r.Add(local(unnamed(p)))
}

// maxMilliseconds is the longest time that a Duration can hold.
const maxMilliseconds = int64(1<<63-1) / int64(time.Millisecond)

// unnamed makes the name the text if there is no text.
func unnamed(p shapes.Part) shapes.Part {
	if p.Text == "" {
		p.Name, p.Text = "", p.Name
	}
	return p
}

// readProgress reads the progress of a tool, a hook or a sub-agent. The usage of a sub-agent's response is in its own
// transcript.
func readProgress(r *shapes.Reading, o *shapes.Object) {
	data, _ := shapes.Open("", o.Take("data"))
	p := shapes.Part{Role: "progress", Name: data.Text("type"), Text: data.Text("fullOutput", "output", "command")}
	r.Add(unnamed(p))
	if line, ok := shapes.Open("message", data.Peek("message")); ok && isLine(line) {
		r.Nest(func() {
			data.Take("message")
			readLine(r, line)
			r.Turn.Response, r.Turn.Usage, r.Turn.Terms = "", events.Tokens{}, events.Terms{}
		})
	}
	r.Leave("progress", data)
}

// readAttachment reads an attachment for the model. A queued prompt is the user's message.
func readAttachment(r *shapes.Reading, o *shapes.Object) {
	a, _ := shapes.Open("attachment", o.Take("attachment"))
	name := a.Text("type")
	if isQueued(a.Members) && a.Has("prompt") {
		prompt, start := a.Take("prompt"), len(r.Turn.Parts)
		if list, err := rawjson.Array(prompt); err == nil {
			shapes.ReadBlocks(r, "user", list)
		} else {
			r.Add(shapes.Part{Role: "user", Text: shapes.TextOf(prompt)})
		}
		r.Separate(start, "meta")
	} else {
		r.Add(unnamed(shapes.Part{Role: "attachment", Name: name, Text: a.Text("content", "text")}))
	}
	r.Leave("attachment", a)
}

// readSnapshot reads the names of the files that were copied before a prompt.
func readSnapshot(r *shapes.Reading, o *shapes.Object) {
	snapshot, _ := shapes.Open("", o.Peek("snapshot"))
	files, _ := rawjson.Object(snapshot.Peek("trackedFileBackups"))
	names := make([]string, len(files))
	for i, f := range files {
		names[i] = f.Name
	}
	slices.Sort(names)
	r.Add(shapes.Part{Role: "snapshot", Text: cmp.Or(strings.Join(names, ", "), "no files")})
}

// local reads a command that the program ran itself, or its output: Claude Code writes both as messages, in tags. A
// text with anything outside of the tags stays as it is.
func local(p shapes.Part) shapes.Part {
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
		return p // without a command
	default:
		p.Kind = shapes.Result
		p.Text = shapes.Join(tags["local-command-stdout"]+tags["bash-stdout"], tags["local-command-stderr"]+tags["bash-stderr"])
	}
	return p
}

// commandLine returns a command as the user typed it. The message repeats the name, or has more.
func commandLine(name, args, message string) string {
	line := strings.TrimSpace(name + " " + args)
	if !strings.Contains(line, message) {
		line += " (" + message + ")"
	}
	return line
}

// tagSets has the tags that occur together.
var tagSets = [][]string{
	{"command-name", "command-message", "command-args"}, {"bash-input"}, {"bash-stdout", "bash-stderr"}, {"local-command-stdout"}, {"local-command-stderr"},
}

// tagged parses a text that has only tags of one set, each at most once.
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

// cutTag cuts the tag at the beginning of a text.
func cutTag(text string, set []string) (name, inside, rest string, ok bool) {
	for _, name := range set {
		if after, is := strings.CutPrefix(text, "<"+name+">"); is {
			inside, rest, ok := strings.Cut(after, "</"+name+">")
			return name, strings.TrimSpace(inside), strings.TrimSpace(rest), ok
		}
	}
	return "", "", "", false
}
