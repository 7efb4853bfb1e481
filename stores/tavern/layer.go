package tavern

import (
	"context"
	"errors"
	"iter"
	"strings"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
)

// Layer is one of three places where things are kept apart.
type Layer string

// Layers.
const (
	LayerVendor   Layer = "vendor"   // transcripts: the vendor's, read and archived, never written
	LayerProject  Layer = "project"  // what travels with the repository
	LayerPersonal Layer = "personal" // of one person, on their machine
)

// layerByKind are those of sessions and documents that do not say of which they are, by kind.
var layerByKind = map[string]Layer{
	events.KindTranscript: LayerVendor,
	events.KindPrompts:    LayerPersonal,
	"setting":             LayerPersonal,
	"secret":              LayerPersonal,
}

// LayerOf returns the layer of what is of a kind, be it a session or a document, and does not
// say of which it is: the project's, but for transcripts (the vendor's), and for settings,
// secrets and prompts (personal). The inbox of the user is personal, too: on another machine
// the user is somebody else.
func LayerOf(kind string) Layer {
	if l, ok := layerByKind[kind]; ok {
		return l
	}
	return LayerProject
}

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
	id := agentBehind(sub)
	if agent := events.Session(sub.Namespace, agentSessions+id); id != "" && agent.Validate() == nil {
		if personal, err := v.isPersonal(ctx, agent, events.Document(sub.Namespace, events.KindAgent, id)); personal || err != nil {
			return personal && v.Layer == LayerPersonal, err
		}
	}
	switch {
	case sub.Namespace == events.PersonalNamespace:
		return v.Layer == LayerPersonal, nil
	case sub.Kind == events.KindBlob, sub.Kind == events.KindUnit:
		return false, nil
	case sub.IsSession():
		return v.hasSession(ctx, sub)
	}
	doc, err := v.Loader().Document(ctx, sub, 0)
	if err != nil {
		if errors.Is(err, tally.ErrNotFound) {
			err = nil // it is gone
		}
		return false, err
	}
	if last := doc.Last(); last != nil && last.Meta.Layer != "" {
		return Layer(last.Meta.Layer) == v.Layer, nil
	}
	return LayerOf(sub.Kind) == v.Layer, nil
}

// agentBehind returns the id of the agent that something is, or that it is the inbox or the
// overlay of; "" if it is none's.
func agentBehind(sub events.Subject) string {
	switch {
	case sub.Kind == events.KindAgent:
		return strings.ToLower(sub.ID)
	case sub.Kind == KindOverlay:
		id, _, _ := strings.Cut(sub.ID, "/")
		return strings.ToLower(id)
	case !sub.IsSession():
		return ""
	}
	for _, kind := range []string{events.KindAgent, events.KindInbox} {
		if id, ok := strings.CutPrefix(sub.ID, kind+"/"); ok {
			return strings.ToLower(id)
		}
	}
	return ""
}

// isPersonal reports whether an agent's session or its node file says that it is personal.
func (v LayerView) isPersonal(ctx context.Context, session, node events.Subject) (bool, error) {
	o, err := v.Loader().Peek(ctx, session)
	if err != nil || Layer(o.Ledger().Text("layer")) == LayerPersonal {
		return err == nil, err
	}
	doc, err := v.Loader().Document(ctx, node, 0)
	if errors.Is(err, tally.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	last := doc.Last()
	return last != nil && Layer(last.Meta.Layer) == LayerPersonal, nil
}

// hasSession reports whether a session is of the layer. A fork begins with the threads of
// another session: it is of that one's layer, if its own is not a narrower one.
func (v LayerView) hasSession(ctx context.Context, sub events.Subject) (bool, error) {
	found := LayerProject
	for range maxForks {
		o, err := v.Loader().Peek(ctx, sub)
		if err != nil {
			return false, err
		}
		l := o.Ledger()
		said := Layer(l.Text("layer"))
		switch {
		case said != "" || l.Fork != nil:
		case sub == projector.InboxSubject(sub.Namespace, User):
			said = LayerPersonal
		default:
			said = LayerOf(l.Kind)
		}
		if said == LayerPersonal || said == LayerVendor && found == LayerProject {
			found = said
		}
		if l.Fork == nil {
			break
		}
		sub = events.Session(sub.Namespace, l.Fork.Session)
	}
	return found == v.Layer, nil
}

// maxForks bounds how far back the sessions are looked at that one is a fork of.
const maxForks = 1000
