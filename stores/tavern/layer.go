package tavern

import (
	"context"
	"iter"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/stores/tavern/internal/layers"
)

// Layer is one of three places where things are kept apart.
type Layer string

// Layers.
const (
	LayerVendor   Layer = layers.Vendor   // transcripts: the vendor's, read and archived, never written
	LayerProject  Layer = layers.Project  // what travels with the repository
	LayerPersonal Layer = layers.Personal // of one person, on their machine
)

// LayerOf returns the layer of what is of a kind, be it a session or a document, and does not
// say of which it is: the project's, but for transcripts (the vendor's), and for settings,
// secrets and prompts (personal). The inbox of the user is personal, too: on another machine
// the user is somebody else.
func LayerOf(kind string) Layer { return Layer(layers.Of(kind)) }

// teamKinds are kinds of documents that a team shares.
var teamKinds = []string{"doc", "agent", "workflow", "overlay", "expert", "recipe", "setting", "secret", "file", "kind"}

// Kinds says which layers documents are of, and that templates are held to CheckWorkflow and
// the files of agents to CheckNode, for embedded.Options.Kinds and [tally.Config.Kinds]. With it a document of the project that
// links to something personal is refused, whether it says its layer or not. The map is the
// caller's.
func Kinds() map[string]tally.Kind {
	table := make(map[string]tally.Kind, len(teamKinds))
	for _, k := range teamKinds {
		table[k] = tally.Kind{Layer: string(LayerOf(k))}
	}
	table[KindWorkflow] = tally.Kind{Layer: string(LayerProject), Validate: CheckWorkflow}
	table[events.KindAgent] = tally.Kind{Layer: table[events.KindAgent].Layer, Validate: CheckNode}
	return table
}

// LayerView is a store of which only one layer is seen: an export of it has nothing of
// another one. What a subject says of its layer counts, else its kind.
type LayerView struct {
	*tally.Store
	Layer Layer
}

// LayerOnly returns a view of a store that has the subjects of a layer.
func LayerOnly(st *tally.Store, l Layer) LayerView { return LayerView{st, l} }

// Subjects yields the subjects of a kind in the store's namespace that are of the layer.
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

// Has reports whether a session or document is of the layer. What the namespace
// [events.PersonalNamespace] has is personal, whatever it says. Blobs are of none: they are
// parts of what refers to them. Nor is what the log keeps of appends to several subjects. An
// agent is personal if its session or its node file is, and so are its inbox and its overlay
// then.
func (v LayerView) Has(ctx context.Context, sub events.Subject) (bool, error) {
	return layers.Has(ctx, v.Loader(), string(v.Layer), sub)
}
