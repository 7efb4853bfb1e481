// Package layers determines the layer of sessions and documents: a project's, one person's, or an agent vendor's.
// Package tavern and its layout use it.
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
	agentPrefix = events.KindAgent + "/" // of ids of agents' sessions
	KindOverlay = "overlay"              // kind of documents
	User        = "user"                 // receiver id of the person's inbox
)

// byKind has the layers of kinds whose sessions and documents do not name one.
var byKind = map[string]string{
	events.KindTranscript: Vendor,
	events.KindPrompts:    Personal,
	"setting":             Personal,
	"secret":              Personal,
}

// Of returns the layer of a kind whose subjects do not name one.
func Of(kind string) string {
	if l, ok := byKind[kind]; ok {
		return l
	}
	return Project
}

// Has reports whether a session or document belongs to a layer: see tavern.LayerView.
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
			err = nil // it was deleted
		}
		return false, err
	}
	if last := doc.Last(); last != nil && last.Meta.Layer != "" {
		return last.Meta.Layer == layer, nil
	}
	return Of(sub.Kind) == layer, nil
}

// agentBehind returns the id of the agent that a subject is, or whose inbox or overlay it is, or "".
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

// isPersonal reports whether an agent's session or its node file is personal.
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

// ofSession returns the layer of a session. A fork begins with the threads of another session, so it has that one's
// layer unless its own is narrower.
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

// maxForks bounds how many ancestors of a fork are read.
const maxForks = 1000
