package erratadir

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/errata/internal/panel"
	"github.com/tallylog/tally/stores/errata/recipe"
	"github.com/tallylog/tally/stores/internal/sessiondir"
)

// recipeDoc is a recipe to store.
type recipeDoc struct {
	doc         events.Subject
	data        []byte
	contentType string
}

// newRecipe returns the document of a recipe in markdown. Its id is the hash of the configuration, for any spelling.
func newRecipe(ns string, data []byte) *recipeDoc {
	return &recipeDoc{events.Document(ns, kindRecipe, recipe.TextHash(data)), data, "text/markdown; charset=utf-8"}
}

// put stores the recipe unless its hash has one: the first text stays.
func (r *recipeDoc) put(ctx context.Context, im *sessiondir.Intake, root string) error {
	return im.Change(ctx, r.doc, func(have sessiondir.Stored) (events.Event, bool, error) {
		meta := events.DocMeta{}
		if root != "" {
			meta.Attributes = map[string]string{sessiondir.AttrRoot: root}
		}
		e := events.Event{Source: EventSource, Type: events.TypeDocumentWritten, Subject: r.doc, ContentType: r.contentType, Data: r.data,
			ID: events.DerivedID(Format, r.doc.String(), have.Last.String(), sessiondir.SumOf(r.data))}
		return e.WithExtension(events.ExtDoc, meta.String()), !have.Exists, nil
	})
}

// readRecipes parses recipes.json: texts, or snapshots of the first generation.
func readRecipes(ns string, data []byte) ([]*recipeDoc, error) {
	v, err := sessiondir.ReadJSON(data, 0)
	if err != nil {
		return nil, err
	}
	m, err := rawjson.Object(v.Raw)
	if err != nil {
		return nil, err
	}
	var list []*recipeDoc
	for _, x := range m {
		r := &recipeDoc{doc: events.Document(ns, kindRecipe, x.Name), data: x.Value, contentType: events.ContentTypeJSON}
		if x.Value[0] == '"' {
			s, err := rawjson.String(x.Value)
			if err != nil {
				return list, err
			}
			r.data, r.contentType = []byte(s), "text/markdown; charset=utf-8"
		}
		if err := r.doc.Validate(); err != nil {
			return list, err
		}
		list = append(list, r)
	}
	return list, nil
}

// liveRecipes renders recipes.json from the recipes that were not imported, nil without any.
func liveRecipes(ctx context.Context, src layouts.Source) ([]byte, error) {
	var m rawjson.Members
	for info, err := range src.Subjects(ctx, kindRecipe) {
		if err != nil {
			return nil, err
		}
		d, err := src.Loader().Document(ctx, info.Subject, 0)
		if errors.Is(err, projector.ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if d.Last().Meta.Attributes[sessiondir.AttrRoot] != "" {
			continue
		}
		value := panel.JSON(string(d.Data))
		if events.IsJSON(d.Last().ContentType) {
			value = d.Data
		}
		m = append(m, rawjson.Member{Name: info.Subject.ID, Value: value})
	}
	if len(m) == 0 {
		return nil, nil
	}
	slices.SortFunc(m, func(a, b rawjson.Member) int { return strings.Compare(a.Name, b.Name) })
	var b bytes.Buffer
	if err := json.Indent(&b, panel.ObjectJSON(m), "", "  "); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}
