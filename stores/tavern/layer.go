package tavern

import (
	"context"
	"iter"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/stores/tavern/internal/layers"
)

// Layer is one of three parts into which a store's subjects are divided.
type Layer string

// Layers.
const (
	LayerVendor   Layer = layers.Vendor   // transcripts: read and archived, never written
	LayerProject  Layer = layers.Project  // travels with the repository
	LayerPersonal Layer = layers.Personal // belongs to one person, on their machine
)

// layerOf returns the layer of a kind of sessions or documents whose subjects do not name their own: the project's, but
// for transcripts (the vendor's), and for settings, secrets and prompts (personal). The user's inbox is personal too,
// because another machine has another user.
func layerOf(kind string) Layer { return Layer(layers.Of(kind)) }

// teamKinds are the kinds of documents that a team shares.
var teamKinds = []string{"doc", "agent", "workflow", "overlay", "expert", "recipe", "setting", "secret", "file", "kind"}

// Kinds returns the layers of kinds of documents, and the checks of templates (CheckWorkflow) and of agents' files
// (CheckNode), for embedded.Options.Kinds and [tally.Config.Kinds]. With it, a document of the project may not link to
// personal documents. The caller owns the map.
func Kinds() map[string]tally.Kind {
	table := make(map[string]tally.Kind, len(teamKinds))
	for _, k := range teamKinds {
		table[k] = tally.Kind{Layer: string(layerOf(k))}
	}
	table[KindWorkflow] = tally.Kind{Layer: string(LayerProject), Validate: CheckWorkflow}
	table[events.KindAgent] = tally.Kind{Layer: table[events.KindAgent].Layer, Validate: CheckNode}
	return table
}

// LayerView is a view of one layer of a store. An export of it has nothing of other layers. A subject's own layer
// overrides that of its kind.
type LayerView struct {
	*tally.Store
	Layer Layer
}

// LayerOnly returns a view of a store's layer.
func LayerOnly(st *tally.Store, l Layer) LayerView { return LayerView{st, l} }

// Subjects yields the subjects of a kind in the store's namespace that belong to the layer.
func (v LayerView) Subjects(ctx context.Context, kind string) iter.Seq2[log.SubjectInfo, error] {
	return func(yield func(log.SubjectInfo, error) bool) {
		for info, err := range v.Store.Subjects(ctx, kind) {
			has := false
			if err == nil {
				has, err = v.Has(ctx, info.Subject)
			}
			if (has || err != nil) && !yield(info, err) {
				return
			}
		}
	}
}

// Has reports whether a session or document belongs to the layer. Everything in the namespace
// [events.PersonalNamespace] is personal. Blobs belong to no layer, because they are parts of what refers to them;
// neither do the log's own records of appends to several subjects. An agent is personal if its session or its node file
// is, and then so are its inbox and its overlay.
func (v LayerView) Has(ctx context.Context, sub events.Subject) (bool, error) {
	return layers.Has(ctx, v.Loader(), string(v.Layer), sub)
}
