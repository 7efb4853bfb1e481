package ailoopdir

import (
	"bytes"
	"os"
	"strings"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/internal/sessiondir"
)

// Format is the layout's name.
const Format = "ailoop"

// EventSource is the CloudEvents source of every event that an import makes.
const EventSource = "urn:tally:import:ailoop"

const (
	prefix    = "history/" // of the ids of histories
	suffix    = ".json"
	formatKey = "snapshot.json" // key of the session's only file in its formats
	fieldFile = "ailoopFile"    // name of the file, if it differs from the one made of the id
)

// Layout is the layout of this package. It has no state.
type Layout struct {
	sessiondir.Layout[store, *snapshotFile, view]
}

var (
	_ layouts.Layout  = Layout{}
	_ layouts.Chooser = Layout{}

	_ sessiondir.Store[store, *snapshotFile, view] = store{}
)

// sniffed is the part of a truncated file, in bytes, that must identify it.
const sniffed = 4 << 10

// Sniff implements layouts.Layout. It recognises a file that is a JSON object with version, messages and pinned, or
// the beginning of one.
func (Layout) Sniff(path string) bool {
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() || info.Size() > events.MaxValue {
		return false
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return false
	}
	data = bytes.TrimPrefix(data, []byte(sessiondir.BOM))
	members, err := rawjson.Object(data)
	if err == nil {
		return has(members, "version") && has(members, "messages") && has(members, "pinned")
	}
	head := data[:min(len(data), sniffed)]
	return bytes.HasPrefix(rawjson.Trim(data), []byte("{")) && bytes.Contains(head, []byte(`"version"`)) && bytes.Contains(head, []byte(`"messages"`))
}

func has(members rawjson.Members, name string) bool {
	_, ok := members.Get(name)
	return ok
}

// idOf returns the id of a file's session, and whether the name contains the whole id. A shortened name does not.
func idOf(name string) (string, bool) {
	base := strings.TrimSuffix(name, suffix)
	if base == "" {
		base = name
	}
	if id, ok := layouts.ParseFileName(base); ok {
		return prefix + id, true
	}
	return prefix + base, !layouts.IsShortened(base)
}

// nameOf returns the file name for an id.
func nameOf(id string) string { return layouts.FileName(strings.TrimPrefix(id, prefix)) + suffix }

// fileOf returns the name of a session's file: the imported one, else the one made of the id.
func fileOf(s *projector.Session) string {
	if name := s.Ledger.Text(fieldFile); layouts.IsFileName(name) {
		return name
	}
	return nameOf(s.Subject.ID)
}
