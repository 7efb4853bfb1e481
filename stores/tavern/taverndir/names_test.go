package taverndir_test

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/internal/testkit/layouttest"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/tavern/taverndir"
)

// logged appends an entry to a session's log.
func logged(event, reason string) func(*projector.Outline) ([]events.Payload, error) {
	return func(*projector.Outline) ([]events.Payload, error) {
		return []events.Payload{&events.SessionUpdated{Set: events.Fields{}, Reason: reason, Log: &events.SessionLog{Event: event, At: "2026-08-23T10:00:00Z"}}}, nil
	}
}

// With any ids of documents, no two have the same file on any system, no file has the name of a folder, no path is
// hidden or leads out of the folder, and another store has the same ids.
func TestNamesLaw(t *testing.T) {
	t.Run("D-53 names are the ids'", rapid.MakeCheck(func(rt *rapid.T) {
		ids := map[string]string{}
		for range rapid.IntRange(1, 6).Draw(rt, "documents") {
			id := strings.Join(rapid.SliceOfN(rapid.SampledFrom([]string{"a", "A", "b", "/", "/", ".", "..", ".md", "é", "e\u0301", "=", "=41", "=2E", " ", "\n", ":", "CON", "\xff", "\u202e"}), 1, 5).Draw(rt, "id"), "")
			if events.Document("default", "doc", id).Validate() != nil {
				continue
			}
			ids[id] = rapid.SampledFrom([]string{"text/markdown", "text/plain"}).Draw(rt, "type")
		}
		checkNames(t, rt, ids)
	}))
	t.Run("D-53 a folder without a second spelling", func(t *testing.T) {
		checkNames(t, t, map[string]string{" ": "text/plain", " /a": "text/plain", "=20": "text/plain", " =2Fa": "text/plain"})
		checkNames(t, t, map[string]string{"\n/\n": "text/plain", "\n": "text/markdown", "\n/\n/b": "text/plain"})
	})
}

// checkNames exports documents, given as ids and types, and checks their files.
func checkNames(t *testing.T, rt rapid.TB, ids map[string]string) {
	st := openStore(t)
	for id, contentType := range ids {
		need(st.Documents().Save(t.Context(), "doc", id, tally.Write{Data: []byte(id), ContentType: contentType}))
	}
	files, r := layouttest.Exported(t, st, taverndir.Layout{})
	if len(r.Problems) > 0 || len(files) != len(ids) {
		rt.Fatalf("got %d files of %d documents, problems %+v", len(files), len(ids), r.Problems)
	}
	system := map[string]bool{} // names as on a system that distinguishes few names
	for name := range files {
		if !strings.HasPrefix(name, "docs/") || strings.Contains(name, "/.") || strings.Contains(name, "//") {
			rt.Fatalf("the name %q is hidden or invalid", name)
		}
		if plain := strings.ToLower(strings.ReplaceAll(name, "e\u0301", "é")); system[plain] {
			rt.Fatalf("the name %q occurs twice in %q", plain, files)
		} else {
			system[plain] = true
		}
	}
	for name := range system {
		for dir := name; strings.Contains(dir, "/"); {
			if dir = dir[:strings.LastIndexByte(dir, '/')]; system[dir] {
				rt.Fatalf("%q is a file and a folder in %q", dir, files)
			}
		}
	}
	again := openStore(t)
	if r := imported(t, again, folder(t, ".tavern", files), layouts.ImportOptions{}); len(r.Problems) > 0 {
		rt.Fatalf("the problems are %+v, the files %q", r.Problems, files)
	}
	for id := range ids {
		if doc, err := again.Documents().Read(t.Context(), "doc", id); err != nil || string(doc.Data) != id {
			rt.Fatalf("%q: %v, of %q", id, err, files)
		}
	}
}
