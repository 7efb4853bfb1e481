package tally_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit/storetest"
)

// If the validator of a kind refuses a document, the error has its field and reason and nothing is written. A kind
// without a validator accepts any content.
func TestDocumentKinds(t *testing.T) {
	storetest.EachWith(t, embedded.Options{Kinds: map[string]tally.Kind{
		"workflow": {Layer: "project", Validate: func(data []byte, contentType string) error {
			var w struct{ States []string }
			switch {
			case contentType != "application/json":
				return &events.InvalidError{Field: "contentType", Reason: "a workflow is JSON"}
			case json.Unmarshal(data, &w) != nil:
				return errors.New("not JSON")
			case len(w.States) == 0:
				return &events.InvalidError{Field: "states", Reason: "there is none"}
			}
			return nil
		}},
		"diary": {Layer: "personal"},
	}}, func(t *testing.T, st *tally.Store) {
		t.Run("D-50 a validator refuses with field and reason", func(t *testing.T) { validators(t, st.Documents()) })
		t.Run("layers", func(t *testing.T) { layers(t, st) })
	})
}

func validators(t *testing.T, d *tally.Documents) {
	ctx := t.Context()
	good := tally.Write{Data: []byte(`{"states":["a"]}`), ContentType: "application/json"}
	rev := mustCreate(t, d, "workflow", "w", good)
	if rev.Meta.Layer != "project" {
		t.Errorf("got %+v, want layer project", rev)
	}
	for want, w := range map[string]tally.Write{
		"invalid contentType: a workflow is JSON": text("x"),
		"invalid data: not JSON":                  {Data: []byte("{"), ContentType: "application/json"},
		"invalid states: there is none":           {Data: []byte("{}"), ContentType: "application/json"},
	} {
		_, create := d.Create(ctx, "workflow", "new", w)
		_, update := d.Update(ctx, "workflow", "w", rev.Offset, w)
		_, save := d.Save(ctx, "workflow", "w", w)
		tx := d.Tx(ctx, func(tx *tally.Tx) error {
			if err := tx.Save(ctx, "other", "beside it", text("x")); err != nil {
				return err
			}
			return tx.Update(ctx, "workflow", "w", w)
		})
		for i, err := range []error{create, update, save, tx} {
			if !invalid(err) || err.Error() != want {
				t.Errorf("call %d: got %v, want %s", i, err, want)
			}
		}
	}
	mustHold(t, d, "workflow", "w", `{"states":["a"]}`)
	mustHold(t, d, "workflow", "new", "")
	mustHold(t, d, "other", "beside it", "")
	mustCreate(t, d, "anything", "goes", text("{"))
}

// A document of the layer project cannot link to a document or session of the layer personal.
func layers(t *testing.T, st *tally.Store) {
	d, ctx := st.Documents(), t.Context()
	mustCreate(t, d, "diary", "today", text("mine"))
	if _, err := st.Session("private").Create(ctx, events.SessionCreated{Kind: "conversation", CreatedAt: "2026-01-01T00:00:00Z", Layer: "personal"}); err != nil {
		t.Fatal(err)
	}
	for _, to := range []string{"document/diary/today", "session/private"} {
		links := []events.Link{{Rel: "see", To: to}}
		if _, err := d.Create(ctx, "doc", "x", tally.Write{Layer: "project", Links: links}); !invalid(err) || !strings.Contains(err.Error(), "personal") {
			t.Errorf("link from project to personal %s: got %v, want an *InvalidError", to, err)
		}
		if _, err := d.Create(ctx, "diary", "to "+to, tally.Write{Links: links}); err != nil {
			t.Errorf("link from personal to personal %s: %v", to, err)
		}
	}
	err := d.Tx(ctx, func(tx *tally.Tx) error {
		if err := tx.Create(ctx, "diary", "new", text("mine")); err != nil {
			return err
		}
		return tx.Create(ctx, "doc", "x", tally.Write{Layer: "project", Links: []events.Link{{Rel: "see", To: "document/diary/new"}}})
	})
	if !invalid(err) {
		t.Errorf("within a transaction: got %v, want an *InvalidError", err)
	}
	if _, err := d.Rename(ctx, "diary", "today", 0, "yesterday"); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Create(ctx, "doc", "x", tally.Write{Layer: "project", Links: []events.Link{{Rel: "see", To: "document/diary/today"}}}); !invalid(err) {
		t.Errorf("link by an earlier name: got %v, want an *InvalidError", err)
	}
	mustHold(t, d, "doc", "x", "")
}
