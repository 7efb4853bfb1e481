// Package layers decides of which layer a session or document is: of a project, of one person, or
// of the vendor of an agent. Package tavern and its layout ask it.
package layers

import (
	"context"
	"errors"
	"strings"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/projector"
)

// Layers: see tavern.Layer.
const (
	Vendor   = "vendor"
	Project  = "project"
	Personal = "personal"
)

const (
	agentPrefix = events.KindAgent + "/" // of ids of sessions of agents
	KindOverlay = "overlay"              // of documents
	User        = "user"                 // whose inbox is that of the person
)

// byKind are those of sessions and documents that do not say of which they are, by kind.
var byKind = map[string]string{
	events.KindTranscript: Vendor,
	events.KindPrompts:    Personal,
	"setting":             Personal,
	"secret":              Personal,
}

// Of returns the layer of what is of a kind and does not say of which it is.
func Of(kind string) string {
	if l, ok := byKind[kind]; ok {
		return l
	}
	return Project
}

// Has reports whether a session or document is of a layer: see tavern.LayerView.
func Has(ctx context.Context, load *projector.Loader, layer string, sub events.Subject) (bool, error) {
	id := agentBehind(sub)
	if agent := events.Session(sub.Namespace, agentPrefix+id); id != "" && agent.Validate() == nil {
		if personal, err := isPersonal(ctx, load, agent, events.Document(sub.Namespace, events.KindAgent, id)); personal || err != nil {
			return personal && layer == Personal, err
		}
	}
	switch {
	case sub.Namespace == events.PersonalNamespace:
		return layer == Personal, nil
	case sub.Kind == events.KindBlob, sub.Kind == events.KindUnit:
		return false, nil
	case sub.IsSession():
		said, err := ofSession(ctx, load, sub)
		return err == nil && said == layer, err
	}
	doc, err := load.Document(ctx, sub, 0)
	if err != nil {
		if errors.Is(err, events.ErrNotFound) {
			err = nil // it is gone
		}
		return false, err
	}
	if last := doc.Last(); last != nil && last.Meta.Layer != "" {
		return last.Meta.Layer == layer, nil
	}
	return Of(sub.Kind) == layer, nil
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
func isPersonal(ctx context.Context, load *projector.Loader, session, node events.Subject) (bool, error) {
	o, err := load.Peek(ctx, session)
	if err != nil || o.Ledger().Text("layer") == Personal {
		return err == nil, err
	}
	doc, err := load.Document(ctx, node, 0)
	if errors.Is(err, events.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	last := doc.Last()
	return last != nil && last.Meta.Layer == Personal, nil
}

// ofSession returns the layer of a session. A fork begins with the threads of
// another session: it is of that one's layer, if its own is not a narrower one.
func ofSession(ctx context.Context, load *projector.Loader, sub events.Subject) (found string, err error) {
	found = Project
	for range maxForks {
		o, err := load.Peek(ctx, sub)
		if err != nil {
			return "", err
		}
		l := o.Ledger()
		said := l.Text("layer")
		switch {
		case said != "" || l.Fork != nil:
		case sub == projector.InboxSubject(sub.Namespace, User):
			said = Personal
		default:
			said = Of(l.Kind)
		}
		if said == Personal || said == Vendor && found == Project {
			found = said
		}
		if l.Fork == nil {
			break
		}
		sub = events.Session(sub.Namespace, l.Fork.Session)
	}
	return found, nil
}

// maxForks bounds how far back the sessions are looked at that one is a fork of.
const maxForks = 1000
