package events_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tallylog/tally/events"
)

// Each field that names an offset, with the reference that it is. The schemas name the same fields.
func TestMapOffsets(t *testing.T) {
	const (
		own      = "default/session/s below @7"
		exact    = "default/session/s at @7"
		other    = "default/session/other below @7"
		document = "default/recipe/r at @7"
	)
	rows := []struct{ typ, path, data, ref string }{
		{events.TypeSessionCreated, "/fork/offset", `{"fork":{"offset": 7 ,"session":"other"}}`, other},
		{events.TypeSessionCreated, "/parent/offset", `{"parent":{"session":"other","x":[1],"offset":7}}`, other},
		{events.TypeSessionCreated, "/recipe", `{"recipe":"document/recipe/r@7"}`, document},
		{events.TypeSessionCreated, "/formats/*/doc", `{"formats":{"a/~b":{"mode":7,"doc":"document/recipe/r@7"}}}`, document},
		{events.TypeSessionUpdated, "/set/recipe", `{"set":{"recipe":"document/recipe/r@7"}}`, document},
		{events.TypeSessionUpdated, "/set/cursors/*", `{"set":{"n":7,"cursors":{"*":7}}}`, own},
		{events.TypeSessionUpdated, "/formats/*/doc", `{"formats":{"*":{"doc":"document/recipe/r@7"}}}`, document},
		{events.TypeSessionRewound, "/to", `{"to":7,"later":7}`, own},
		{events.TypeSessionRewound, "/undoes", `{"undoes":7}`, exact},
		{events.TypeSessionRewound, "/files/*/before", `{"files":[ {"path":"7","before":"absent"} ,[7], {"before":"document/recipe/r@7"}]}`, document},
		{events.TypeCheckpointSaved, "/at", `{"at":7}`, own},
		{events.TypeCheckpointSaved, "/files/*/blob", `{"files":[{"blob":"document/recipe/r@7"}]}`, document},
		{events.TypeRunCreated, "/parent/offset", `{"parent":{"session":"other","offset":7}}`, other},
		{events.TypeRunCreated, "/template", `{"template":"document/recipe/r@7"}`, document},
		{events.TypeRunCreated, "/secrets", `{"secrets":"document/recipe/r@7"}`, document},
		{events.TypeRunProgressed, "/fence", `{"fence":7}`, exact},
		{events.TypeRunFinished, "/fence", `{"fence":7}`, exact},
		{events.TypeRunFinished, "/judged/offset", `{"judged":{"offset":7}}`, own},
		{events.TypeRunFinished, "/formats/*/doc", `{"formats":{"a":{"doc":"document/recipe/r@7"}}}`, document},
		{events.TypeTurnAppended, "/formats/*/doc", `{"entries":[{"thread":"main","turn":7}],"formats":{"a":{"doc":"document/recipe/r@7"}}}`, document},
		{events.TypeThreadReplaced, "/formats/*/doc", `{"formats":{"a":{"doc":"document/recipe/r@7"}}}`, document},
		{events.TypeDocumentDeleted, "/to", `{"to":"document/recipe/r@7"}`, document},
		{events.ExtDoc, "/base", `{"title":"7","base":7}`, "default/recipe/own at @7"},
		{events.ExtBasis, "", "", own},
		{"com.acme.x.v1", "/a/1", `{"a":[7,7],"*":7}`, own},
		{"com.acme.x.v1", "/*", `{"a":[7,8],"*":7}`, own},
	}
	for _, r := range rows {
		t.Run(strings.TrimSpace(fmt.Sprintf("X-30 %s %s", r.typ, r.path)), func(t *testing.T) {
			e := events.Event{ID: "1", Source: "urn:x", Type: r.typ, Subject: events.Session("", "s"), Data: []byte(r.data)}
			text := func(e events.Event) string { return string(e.Data) }
			switch r.typ {
			case events.ExtDoc:
				e.Type, e.Subject, e.Data = events.TypeDocumentWritten, events.Document("", "recipe", "own"), []byte(`{"base":7}`)
				e = e.WithExtension(events.ExtDoc, r.data)
				text = func(e events.Event) string { return e.Extensions[events.ExtDoc] }
			case events.ExtBasis:
				e.Type, e.Data = events.TypeCostAccrued, nil
				e = e.WithExtension(events.ExtBasis, events.Offset(7).Padded())
				text = func(e events.Event) string { return e.Extensions[events.ExtBasis] }
			}
			var pointers []string
			if !events.IsKnown(e.Type) {
				pointers = []string{r.path}
			}
			var refs []string
			mapped, err := e.MapOffsets(pointers, func(ref events.Reference) (events.Offset, error) {
				how := "below"
				if ref.Exact {
					how = "at"
				}
				refs = append(refs, fmt.Sprintf("%s/%s/%s %s %v", ref.Subject.Namespace, ref.Subject.Kind, ref.Subject.ID, how, ref.Offset))
				return 123456, nil
			})
			if err != nil || !slices.Equal(refs, []string{r.ref}) {
				t.Fatalf("%s names %q, want %q: %v", text(e), refs, r.ref, err)
			}
			// All bytes stay but those of the offset.
			before, after := text(e), text(mapped)
			found := false
			for i := range before {
				for _, form := range [][2]string{{events.Offset(7).Padded(), events.Offset(123456).Padded()}, {"7", "123456"}} {
					found = found || strings.HasPrefix(before[i:], form[0]) && before[:i]+form[1]+before[i+len(form[0]):] == after
				}
			}
			if !found || mapped.ID != e.ID || mapped.Type != e.Type {
				t.Errorf("%s became %s", before, after)
			}
			if _, err := e.MapOffsets(pointers, func(events.Reference) (events.Offset, error) { return 0, events.ErrNotFound }); err == nil {
				t.Error("an error is lost")
			}
			same, err := e.MapOffsets(pointers, func(ref events.Reference) (events.Offset, error) { return ref.Offset, nil })
			if err != nil || !same.Equal(e) {
				t.Errorf("with the same offsets it becomes %v, %v", same, err)
			}
		})
	}
	t.Run("X-30 the schemas", func(t *testing.T) {
		var have []string
		for _, r := range rows {
			if events.IsKnown(r.typ) || r.typ == events.ExtDoc {
				have = append(have, r.typ+" "+r.path)
			}
		}
		for _, typ := range schemaTypes() {
			root := mustSchema(t, typ).(map[string]any)
			for _, path := range offsetsIn(root, root, "") {
				if !slices.Contains(have, typ+" "+path) {
					t.Errorf("%s: %s names an offset, and no row has it", typ, path)
				}
				have = slices.DeleteFunc(have, func(row string) bool { return row == typ+" "+path })
			}
		}
		for _, row := range have {
			t.Errorf("the schema of %s names no offset", row)
		}
	})
	t.Run("documents without a revision", func(t *testing.T) {
		e := events.Event{Type: events.TypeRunCreated, Subject: events.Session("", "s"), Data: []byte(`{"template":"document/recipe/r"}`)}
		named := events.Reference{}
		mapped, err := e.MapOffsets(nil, func(ref events.Reference) (events.Offset, error) { named = ref; return 9, nil })
		if want := (events.Reference{Subject: events.Document("", "recipe", "r")}); named != want || err != nil || !mapped.Equal(e) {
			t.Errorf("%+v, %s, %v", named, mapped.Data, err)
		}
	})
}

// offsetsIn returns the paths of a schema at which an offset or a document stands, with * for all members or elements.
func offsetsIn(schema any, root map[string]any, path string) (list []string) {
	m, ok := schema.(map[string]any)
	if !ok {
		return nil
	}
	if ref, ok := m["$ref"].(string); ok {
		switch name := strings.TrimPrefix(ref, "#/$defs/"); name {
		case "offset", "docref", "docrefOrAbsent":
			return []string{path}
		default:
			list = append(list, offsetsIn(root["$defs"].(map[string]any)[name], root, path)...)
		}
	}
	if m["maximum"] == json.Number(fmt.Sprint(uint64(events.MaxOffset))) {
		return []string{path} // an offset that is not 0
	}
	properties, _ := m["properties"].(map[string]any)
	for name, p := range properties {
		list = append(list, offsetsIn(p, root, path+"/"+name)...)
	}
	for _, below := range []string{"items", "additionalProperties"} {
		list = append(list, offsetsIn(m[below], root, path+"/*")...)
	}
	for _, below := range []string{"anyOf", "allOf", "oneOf"} {
		alternatives, _ := m[below].([]any)
		for _, s := range alternatives {
			list = append(list, offsetsIn(s, root, path)...)
		}
	}
	return list
}
