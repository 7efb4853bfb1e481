package errata

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/errata/internal/panel"
	"github.com/tallylog/tally/stores/errata/recipe"
)

// Recipe is the configuration of a panel.
type Recipe = recipe.Recipe

// RecipeSnapshot is a configuration in the form of the older generations of hashes.
type RecipeSnapshot = recipe.Snapshot

// KindRecipe is the kind of documents with recipes; their id is the hash.
const KindRecipe = "recipe"

// KindRecipeText is the kind of documents with the recipe.md of a session; their id is the session's.
const KindRecipeText = panel.KindRecipeText

// Recipes stores recipes by their hash. It is safe for concurrent use, also by several processes. There are three
// generations of hashes: cfg_v and rcp_v name a RecipeSnapshot in JSON, rcp_ names markdown.
type Recipes struct{ st *tally.Store }

// RecipesOf returns a handle on the recipes of the namespace.
func RecipesOf(st *tally.Store) *Recipes { return &Recipes{st} }

// Put stores a recipe.md and returns its hash. If the hash has a text already, the first one stays.
func (r *Recipes) Put(ctx context.Context, text []byte) (string, error) {
	hash := recipe.TextHash(text)
	return hash, r.PutAs(ctx, hash, text)
}

// PutSnapshot stores a configuration under the hash of the second generation.
func (r *Recipes) PutSnapshot(ctx context.Context, s RecipeSnapshot) (string, error) {
	hash := s.VersionedHash()
	return hash, r.PutAs(ctx, hash, panel.JSON(s))
}

// PutAs stores text under a hash that another program computed. If the hash has a text already, the first one stays.
func (r *Recipes) PutAs(ctx context.Context, hash string, text []byte) error {
	doc := r.doc(hash)
	media := "text/markdown"
	if recipe.IsSnapshotHash(hash) {
		media = events.ContentTypeJSON
	}
	e := events.Event{Type: events.TypeDocumentWritten, Subject: doc, ContentType: media, Data: text}
	_, err := r.st.Append(ctx, doc, log.At(0), e)
	if !errors.Is(err, log.ErrConflict) {
		return err
	}
	if _, err = r.st.Loader().Document(ctx, doc, 0); !errors.Is(err, tally.ErrNotFound) {
		return err // it exists, or its existence is unknown
	}
	at, err := r.st.Log.Last(ctx, doc) // it was deleted and is restored
	if err != nil {
		return err
	}
	_, err = r.st.Append(ctx, doc, log.At(at.Offset), e)
	if errors.Is(err, log.ErrConflict) {
		return nil // another writer restored it
	}
	return err
}

func (r *Recipes) doc(hash string) events.Subject {
	return events.Document(r.st.Namespace(), KindRecipe, hash)
}

// Get returns the text of a hash, or ErrNotFound.
func (r *Recipes) Get(ctx context.Context, hash string) ([]byte, error) {
	if hash == "" {
		return nil, fmt.Errorf("a recipe without hash: %w", tally.ErrNotFound)
	}
	d, err := r.st.Loader().Document(ctx, r.doc(hash), 0)
	if err != nil {
		return nil, err
	}
	return d.Data, nil
}

// List returns the texts of all recipes by hash.
func (r *Recipes) List(ctx context.Context) (map[string][]byte, error) {
	list := make(map[string][]byte)
	for info, err := range r.st.Subjects(ctx, KindRecipe) {
		if err != nil {
			return nil, err
		}
		d, err := r.st.Loader().Document(ctx, info.Subject, 0)
		if errors.Is(err, tally.ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		list[info.Subject.ID] = d.Data
	}
	return list, nil
}

// HashesForName returns the hashes of the recipes with a name, sorted.
func (r *Recipes) HashesForName(ctx context.Context, name string) ([]string, error) {
	list, err := r.List(ctx)
	if err != nil {
		return nil, err
	}
	maps.DeleteFunc(list, func(hash string, text []byte) bool { return recipe.NameOf(hash, text) != name })
	return slices.Sorted(maps.Keys(list)), nil
}

// Name returns the name of the recipe with a hash: default if it has no name, "" if the hash is unknown or its text
// is invalid.
func (r *Recipes) Name(ctx context.Context, hash string) (string, error) {
	text, err := r.Get(ctx, hash)
	if errors.Is(err, tally.ErrNotFound) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	return recipe.NameOf(hash, text), nil
}

// keepRecipe stores the text of the session's current recipe, unless it is stored already.
func (s *Session) keepRecipe(ctx context.Context, text []byte) error {
	st := s.Store()
	doc := events.Document(st.Namespace(), KindRecipeText, s.ID())
	last, err := st.Log.Last(ctx, doc)
	if err == nil {
		last, err = projector.Resolve(ctx, st.Log, last, st.MaxValue())
	}
	switch {
	case err == nil && last.Type == events.TypeDocumentWritten && bytes.Equal(last.Data, text):
		return nil
	case err != nil && !errors.Is(err, log.ErrNotFound):
		return err
	}
	meta := events.DocMeta{Links: []events.Link{{Rel: "session", To: s.Subject().String()}}}
	e := events.Event{Type: events.TypeDocumentWritten, Subject: doc, ContentType: "text/markdown", Data: text}
	_, err = st.Append(ctx, doc, log.Any, e.WithExtension(events.ExtDoc, meta.String()))
	return err
}

// SessionRecipe returns the recipe that was set for the session, or nil.
func (s *Session) SessionRecipe(ctx context.Context) (*Recipe, error) {
	now, err := s.peek(ctx)
	if err != nil {
		return nil, err
	}
	ref := events.DocRef(now.Ledger().Text("recipe"))
	if ref == "" {
		return nil, nil
	}
	data, err := blobOf(ctx, s.Store(), ref)
	if err != nil {
		return nil, err
	}
	return recipe.Decode(data)
}

// SetSessionRecipe sets the recipe of the session; nil removes it. It stores all members, also those that recipe.md
// cannot express.
func (s *Session) SetSessionRecipe(ctx context.Context, r *Recipe) error {
	value := json.RawMessage("null")
	if r != nil {
		ref, err := putFile(ctx, s.Store(), r.Encode())
		if err != nil {
			return err
		}
		value = panel.JSON(string(ref))
	}
	return s.set(ctx, "recipe", value, false)
}
