package erratadir

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/errata/internal/panel"
	"github.com/tallylog/tally/stores/errata/recipe"
	"github.com/tallylog/tally/stores/internal/sessiondir"
)

// recipe returns the text of the current recipe: that of the session, else that of the last run that was not
// imported. The session's own text comes first, because a hash does not cover the models. A store without it uses the
// text of the hash.
func (v view) recipe(ctx context.Context) ([]byte, error) {
	ref := events.DocRef(v.s.Ledger.Text("recipe"))
	text, err := v.document(ctx, ref)
	if err != nil || text != nil {
		return asMarkdown(ref, text), err
	}
	shown, err := v.records(ctx)
	if err != nil {
		return nil, err
	}
	for _, r := range slices.Backward(shown.rows) {
		hash := hashIn(r.summary)
		if !r.live || hash == "" {
			continue
		}
		text, err := v.ownRecipe(ctx, hash)
		if text == nil && err == nil {
			text, err = v.document(ctx, events.RefOf(events.Document(v.s.Subject.Namespace, kindRecipe, hash), 0))
		}
		if recipe.IsSnapshotHash(hash) {
			return nil, err
		}
		return text, err
	}
	return v.ownRecipe(ctx, "")
}

// ownRecipe returns the newest text that was stored for the session, of the recipe with a hash, or of any; or nil.
func (v view) ownRecipe(ctx context.Context, hash string) ([]byte, error) {
	doc := events.Document(v.s.Subject.Namespace, panel.KindRecipeText, v.s.Subject.ID)
	if text, err := v.document(ctx, events.RefOf(doc, 0)); text == nil || err != nil {
		return nil, err
	}
	for r, err := range v.src.Loader().Revisions(ctx, doc, 0) {
		if err != nil {
			return nil, err
		}
		text, err := v.document(ctx, events.RefOf(doc, r.Offset))
		if err != nil || text != nil && (hash == "" || recipe.TextHash(text) == hash) {
			return text, err
		}
	}
	return nil, nil
}

// asMarkdown returns a recipe in the form of recipe.md. A recipe that a program set is a blob with more members than
// markdown can express.
func asMarkdown(ref events.DocRef, data []byte) []byte {
	doc, _, err := ref.Parse("")
	if err != nil || doc.Kind != events.KindBlob {
		return data
	}
	r, err := recipe.Decode(data)
	if err != nil {
		return data
	}
	return []byte(r.Markdown())
}

func hashIn(summary events.Raw) string { return panel.Object(summary).Text("config_hash") }

// document returns the content of a document, or nil.
func (v view) document(ctx context.Context, ref events.DocRef) ([]byte, error) {
	doc, at, err := ref.Parse(v.s.Subject.Namespace)
	if err != nil {
		return nil, nil //nolint:nilerr // the field does not name a document
	}
	if doc.Kind == events.KindBlob {
		return projector.Blob(ctx, v.src.Loader().Source, doc.Namespace, doc.ID, sessiondir.MaxValue(v.src))
	}
	d, err := v.src.Loader().Document(ctx, doc, at)
	if errors.Is(err, projector.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return d.Data, nil
}

// checkpoint renders the checkpoint of an unfinished run, or returns nil. It is the imported file, or the saved
// responses since.
func (v view) checkpoint(ctx context.Context) ([]byte, error) {
	c := panel.Unfinished(v.s.Ledger)
	if c == nil {
		return nil, nil
	}
	parts := saved{responses: make(map[string]events.Raw)}
	source := v.src.Loader().Source
	for rec, err := range source.Read(ctx, events.Range{Subject: v.s.Subject, After: c.Saved[0] - 1, Upto: panel.Newest(c)}) {
		if err == nil {
			rec, err = projector.Resolve(ctx, source, rec, sessiondir.MaxValue(v.src))
		}
		if err != nil {
			return nil, err
		}
		switch p := projector.Decode(rec).Payload.(type) {
		case *events.CheckpointCleared:
			if p.Kind == events.CheckpointResume && (p.ID == "" || p.ID == c.ID) {
				parts = saved{responses: make(map[string]events.Raw)}
			}
		case *events.CheckpointSaved:
			if p.Kind == events.CheckpointResume && p.ID == c.ID {
				parts.add(rec, p)
			}
		}
	}
	return parts.render(), nil
}

// saved are the parts of a checkpoint.
type saved struct {
	file      events.Raw // the newest imported file, unless a part was saved after it
	prompt    string
	at        time.Time
	models    []string
	responses map[string]events.Raw // by model
	verbose   bool
}

func (s *saved) add(rec events.Record, p *events.CheckpointSaved) {
	m := panel.Object(p.Raw)
	s.prompt, s.at = p.Prompt, cmp.Or(rec.Time, rec.Recorded)
	if p.Responses == nil && p.Raw != nil {
		s.file, s.models = p.Raw, panel.Texts(m, "adapter_ids")
		list, _ := panel.List(m, "responses")
		s.keep(list)
		return
	}
	s.file = nil
	if models := panel.Texts(m, "adapterIds"); models != nil {
		s.models = models
	}
	verbose, _ := m.Get("verbose")
	s.verbose = string(verbose) == "true"
	list, err := rawjson.Array(p.Responses)
	if err == nil {
		s.keep(list)
	}
}

func (s *saved) keep(responses []events.Raw) {
	for _, raw := range responses {
		m := slices.DeleteFunc(panel.Object(raw), func(x rawjson.Member) bool { return x.Name == "stop_reason" || x.Name == "steps" }) // the file has no members for them
		id := m.Text("model_id")
		s.responses[id] = panel.ObjectJSON(m)
		if !slices.Contains(s.models, id) {
			s.models = append(s.models, id)
		}
	}
}

func (s *saved) render() []byte {
	if s.file != nil {
		return s.file
	}
	list := []events.Raw{}
	for _, id := range s.models {
		if raw := s.responses[id]; raw != nil {
			list = append(list, raw)
		}
	}
	return panel.ObjectJSON(rawjson.Members{
		{Name: "prompt", Value: panel.JSON(s.prompt)},
		{Name: "timestamp", Value: panel.JSON(s.at.Format(time.RFC3339Nano))},
		{Name: "adapter_ids", Value: panel.JSON(append([]string{}, s.models...))}, // never null
		{Name: "responses", Value: rawjson.AppendArray(nil, list)},
		{Name: "verbose", Value: panel.JSON(s.verbose)},
	})
}
