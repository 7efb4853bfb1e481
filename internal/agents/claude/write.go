package claude

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/tallylog/tally/internal/agents"
	"github.com/tallylog/tally/internal/rawjson"
)

// Transcript is a session that Claude Code is to continue: the lines of another one, up to
// where somebody wants to go on from.
type Transcript struct {
	Session string   // the new session, a UUID
	From    string   // the session whose lines they are
	Lines   [][]byte // in effect, in their order, of the session's own file
}

// Name returns the path of the file below the folder of projects, given the project's
// folder. The names come from the ids of sessions, which may be anything: an error says
// that one of them is no name of a file or folder.
func (t Transcript) Name(project string) (string, error) {
	if !isFolder(project) {
		return "", fmt.Errorf("%q is not the name of a project's folder: want one name without slashes, backslashes and control characters", project)
	}
	if !token(t.Session) {
		return "", fmt.Errorf("%q is not the id of a session", t.Session)
	}
	return project + "/" + t.Session + ".jsonl", nil
}

// isFolder reports whether a project is one name of a folder on every system.
func isFolder(project string) bool {
	isOdd := func(r rune) bool { return r < ' ' || r == 0x7f || strings.ContainsRune(`/\:`, r) }
	return project != "" && len(project) <= 255 && strings.Trim(project, ". ") != "" && !strings.ContainsFunc(project, isOdd)
}

// naming are members of an entry that name another one, or itself.
var naming = []string{"uuid", "parentUuid", "logicalParentUuid", "leafUuid", "sourceToolAssistantUUID"}

// Append appends the file. It is what a fork of Claude Code's own is: each entry names the
// new session, has a uuid of its own, and says of which one it is a copy. Snapshots of files
// are left out, because they lie in a folder of the old session, and so is what is no entry.
func (t Transcript) Append(dst []byte) ([]byte, error) {
	if !token(t.Session) || !token(t.From) || t.Session == t.From {
		return dst, fmt.Errorf("a transcript of session %q from %q: want two ids", t.Session, t.From)
	}
	out, has := dst, false
	for _, line := range t.Lines {
		for _, raw := range objects(line) {
			raw, ok := t.entry(raw)
			if !ok {
				continue
			}
			out, has = append(append(out, raw...), '\n'), true
		}
	}
	if !has {
		return dst, errors.New("session " + t.From + " has nothing there that can be continued")
	}
	return out, nil
}

// objects returns the values of a line as they stand in it.
func objects(line []byte) (list [][]byte) {
	values := json.NewDecoder(bytes.NewReader(line))
	for {
		var raw json.RawMessage
		if values.Decode(&raw) != nil {
			return list
		}
		list = append(list, raw)
	}
}

// entry is an entry of the new session; false: it has no place there.
func (t Transcript) entry(raw []byte) ([]byte, bool) {
	v, err := rawjson.Object(raw)
	if err != nil || v.Text("type") == "" || v.Text("type") == "file-history-snapshot" {
		return nil, false
	}
	if _, ok := v.Get("sessionId"); ok {
		raw, err = rawjson.SetMember(raw, "sessionId", text(t.Session))
	}
	for _, name := range naming {
		if id := v.Text(name); id != "" && err == nil {
			raw, err = rawjson.SetMember(raw, name, text(t.uuid(id)))
		}
	}
	if id := v.Text("uuid"); id != "" && err == nil {
		raw, err = rawjson.SetMember(raw, "forkedFrom", agents.Spell(struct {
			Session string `json:"sessionId"`
			Message string `json:"messageUuid"`
		}{t.From, id}))
	}
	return raw, err == nil
}

// uuid is what an entry's uuid is in the new session.
func (t Transcript) uuid(old string) string {
	b := sha256.Sum256([]byte(t.Session + "\x00" + old))
	b[6], b[8] = b[6]&0x0f|0x80, b[8]&0x3f|0x80 // version 8: made of something else
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:16])
}
