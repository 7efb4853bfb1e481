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

// Transcript is a session for Claude Code to continue: the lines of another one, up to the chosen position.
type Transcript struct {
	Session string   // the new session, a UUID
	From    string   // the session of the lines
	Lines   [][]byte // in effect, in order, of the session's own file
}

// Name returns the path of the file below the folder of projects. The names come from ids of sessions, which may be
// any text. If one of them is not a valid name of a file or folder, Name returns an error.
func (t Transcript) Name(project string) (string, error) {
	if !isFolder(project) {
		return "", fmt.Errorf("%q is not the name of a project's folder: want one name without slashes, backslashes and control characters", project)
	}
	if !token(t.Session) {
		return "", fmt.Errorf("%q is not the id of a session", t.Session)
	}
	return project + "/" + t.Session + ".jsonl", nil
}

// isFolder reports whether project is one valid folder name on every system.
func isFolder(project string) bool {
	isOdd := func(r rune) bool { return r < ' ' || r == 0x7f || strings.ContainsRune(`/\:`, r) }
	return project != "" && len(project) <= 255 && strings.Trim(project, ". ") != "" && !strings.ContainsFunc(project, isOdd)
}

// naming has the members of an entry with the id of an entry.
var naming = []string{"uuid", "parentUuid", "logicalParentUuid", "leafUuid", "sourceToolAssistantUUID"}

// Append appends the file to dst, in the form of Claude Code's own forks: each entry has the new session, a uuid of
// its own, and the uuid of its original. It omits snapshots of files, because they lie in a folder of the old
// session, and values that are not entries.
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
		return dst, errors.New("session " + t.From + " has no message at this point to continue from")
	}
	return out, nil
}

// objects returns the values of a line with their bytes.
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

// entry returns an entry of the new session, and false for one that is omitted.
func (t Transcript) entry(raw []byte) ([]byte, bool) {
	v, err := rawjson.Object(raw)
	if err != nil || v.Text("type") == "" || v.Text("type") == "file-history-snapshot" {
		return nil, false
	}
	if _, ok := v.Get("sessionId"); ok {
		raw, err = rawjson.SetMember(raw, "sessionId", jsonString(t.Session))
	}
	for _, name := range naming {
		if id := v.Text(name); id != "" && err == nil {
			raw, err = rawjson.SetMember(raw, name, jsonString(t.uuid(id)))
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

// uuid returns the uuid of an entry in the new session.
func (t Transcript) uuid(old string) string {
	b := sha256.Sum256([]byte(t.Session + "\x00" + old))
	b[6], b[8] = b[6]&0x0f|0x80, b[8]&0x3f|0x80 // version 8: computed from other data
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:16])
}
