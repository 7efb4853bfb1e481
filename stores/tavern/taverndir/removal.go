package taverndir

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"strings"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/internal/sessiondir"
	"github.com/tallylog/tally/stores/tavern/internal/nodefile"
)

// Removal implements layouts.Layout. It deletes a document, and archives an agent with its node file. Inboxes and
// queues stay.
func (Layout) Removal(ctx context.Context, src layouts.Source, entry events.Subject) ([]log.Part, error) {
	switch {
	case !entry.IsSession():
		return stamp.Removed(ctx, src, entry)
	case !strings.HasPrefix(entry.ID, agentPrefix):
		return nil, nil
	}
	var now time.Time
	parts, err := stamp.Archived(ctx, src, entry, func(o *projector.Outline) (set events.Fields, err error) {
		l := o.Ledger()
		if now, err = sessiondir.Now(ctx, src, l); err != nil {
			return nil, err
		}
		set = events.Fields{text("statusReason", "its files were removed"), text("archivedAt", string(events.TimestampOf(now)))}
		if _, leased := l.Fields.Get("lease"); leased {
			set = append(set, events.Field{Name: "lease", Value: events.Raw("null")})
		}
		return set, nil
	})
	if err != nil || len(parts) == 0 {
		return nil, err
	}
	part, err := archivedNode(ctx, src, agentDoc(entry), now)
	if err == nil && part != nil {
		parts = append(parts, *part)
	}
	return parts, err
}

// archivedNode returns the revision that sets a node file's state to archived. It returns nil if the file does not
// exist or is not an agent's.
func archivedNode(ctx context.Context, src layouts.Source, sub events.Subject, now time.Time) (*log.Part, error) {
	doc, err := src.Loader().Document(ctx, sub, 0)
	if errors.Is(err, projector.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	n, err := nodefile.Parse(doc.Data)
	if err != nil {
		return nil, nil //nolint:nilerr // the file is not an agent's
	}
	n.State = "archived"
	if n.UpdatedAt != "" {
		n.UpdatedAt = now.UTC().Format(time.RFC3339)
	}
	data, err := nodefile.Edit(doc.Data, n)
	if err != nil || bytes.Equal(data, doc.Data) {
		return nil, err
	}
	last := doc.Last()
	meta := last.Meta
	meta.Base, meta.Attributes = last.Offset, maps.Clone(meta.Attributes)
	delete(meta.Attributes, "sha256") // the content is no longer the imported one
	delete(meta.Attributes, "marker")
	e := events.Event{Source: EventSource, Type: events.TypeDocumentWritten, Subject: sub, ContentType: last.ContentType, Data: data}
	e.ID = events.DerivedID(Format, sub.String(), doc.Head.String(), "archived")
	return &log.Part{Subject: sub, Expect: log.At(doc.Head), Events: []events.Event{e.WithExtension(events.ExtDoc, meta.String())}}, nil
}
