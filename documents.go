package tally

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
)

// List returns a page of the documents that a query selects, and the After of the query for the next page, "" on the
// last page. It includes every write that was acknowledged before the call. If a record of a selected document is lost,
// the first page comes with a *projector.HoleError.
func (d *Documents) List(ctx context.Context, q projector.DocumentQuery) (list []projector.DocumentListed, next string, err error) {
	q.Namespace = cmp.Or(q.Namespace, d.st.config.Namespace)
	if list, next, err = d.viewed(ctx, q); err != nil {
		return nil, "", err
	}
	if q.After == "" {
		err = d.lostOf(ctx, q)
	}
	return list, next, err
}

// lostOf returns a *projector.HoleError if a record is lost that may belong to a document that a query selects: the
// list may lack a document.
func (d *Documents) lostOf(ctx context.Context, q projector.DocumentQuery) error {
	return d.st.Lacks(ctx, "catalog", q.Namespace, func(sub events.Subject) bool {
		return (q.Kind == "" && isDocument(sub) || sub.Kind == q.Kind) && strings.HasPrefix(sub.ID, q.Prefix)
	})
}

// isDocument reports whether a list of all kinds includes a subject.
func isDocument(sub events.Subject) bool {
	return !sub.IsSession() && sub.Kind != events.KindBlob && sub.Kind != events.KindUnit
}

// viewed lists documents from the catalog. If there is no catalog, or it is behind, it lists them from the log.
func (d *Documents) viewed(ctx context.Context, q projector.DocumentQuery) ([]projector.DocumentListed, string, error) {
	if d.st.config.Host.Lister == nil {
		return d.st.listed(ctx, q)
	}
	if shown, err := d.st.Shows(ctx, "catalog"); err != nil || !shown {
		return d.st.listed(ctx, q)
	}
	list, next, err := d.st.config.Host.Lister(ctx, q)
	if _, wrong := errors.AsType[*events.InvalidError](err); err != nil && !wrong {
		return d.st.listed(ctx, q)
	}
	if err == nil && !q.Deleted {
		list, err = d.st.unexpired(ctx, list)
	}
	return list, next, err
}

// unexpired drops the documents that have expired since the last record of the view.
func (st *Store) unexpired(ctx context.Context, list []projector.DocumentListed) ([]projector.DocumentListed, error) {
	if !slices.ContainsFunc(list, func(d projector.DocumentListed) bool { return !d.ExpiresAt.IsZero() }) {
		return list, nil
	}
	now, err := st.LogTime(ctx)
	return slices.DeleteFunc(list, func(d projector.DocumentListed) bool { return !d.ExpiresAt.IsZero() && !d.ExpiresAt.After(now) }), err
}

// listed lists documents from the log: it reads each document.
func (st *Store) listed(ctx context.Context, q projector.DocumentQuery) ([]projector.DocumentListed, string, error) {
	l := lister{st: st, q: q}
	if err := l.begin(); err != nil {
		return nil, "", err
	}
	for info, err := range st.Log.Subjects(ctx, q.Namespace, q.Kind) {
		if err != nil {
			return nil, "", err
		}
		if q.Kind == "" && info.Subject.Kind == events.KindBlob || info.Subject.Kind == events.KindSession || info.Subject.Kind == events.KindUnit {
			continue
		}
		if err := l.add(ctx, info.Subject); err != nil {
			return nil, "", err
		}
	}
	list, next := q.Page(l.list)
	return list, next, nil
}

// lister makes one page of a list.
type lister struct {
	st    *Store
	q     projector.DocumentQuery
	link  events.Subject // that the query asks for; zero: any
	from  events.Subject // the page begins behind it
	below events.Offset  // with Newest: the page begins below this offset; 0: at the top
	list  []projector.DocumentListed
}

// begin parses the link and the position of the query.
func (l *lister) begin() (err error) {
	if l.q.Link != "" {
		if l.link, err = events.ParseSubject(l.q.Namespace, l.q.Link); err != nil {
			return err
		}
	}
	l.from, l.below, err = l.q.Begin()
	return err
}

// add reads a document, and adds it to the page if the query selects it.
func (l *lister) add(ctx context.Context, sub events.Subject) error {
	full := !l.q.Newest && l.q.Limit > 0 && len(l.list) > l.q.Limit
	if full || !l.selects(sub) {
		return nil
	}
	d, links, err := l.st.listedOf(ctx, sub)
	if err != nil {
		return err
	}
	q := l.q
	if d.Revisions == 0 || d.Deleted && !q.Deleted || q.Owner != "" && d.Owner != q.Owner || q.Layer != "" && d.Layer != q.Layer || l.below > 0 && d.Last >= l.below {
		return nil
	}
	if !q.Deleted && !d.ExpiresAt.IsZero() {
		if now, err := l.st.LogTime(ctx); err != nil || !d.ExpiresAt.After(now) {
			return err
		}
	}
	if q.Link != "" {
		if has, err := l.st.haveLink(ctx, links, l.link, q.Rel); err != nil || !has {
			return err
		}
	}
	l.list = append(l.list, d)
	return nil
}

// selects reports whether the query may select a document, judging by its name alone.
func (l *lister) selects(sub events.Subject) bool {
	behind := l.from == (events.Subject{}) || cmp.Or(strings.Compare(sub.Kind, l.from.Kind), strings.Compare(sub.ID, l.from.ID)) > 0
	return behind && strings.HasPrefix(sub.ID, l.q.Prefix)
}

// listedOf returns the row of a document, and its links. Title, owner and layer are those of the newest revision that
// is not a deletion.
func (st *Store) listedOf(ctx context.Context, sub events.Subject) (l projector.DocumentListed, links []events.Link, err error) {
	l.Subject = sub
	all, err := st.loader.History(ctx, sub)
	if errors.Is(err, ErrNotFound) || err == nil && all.Last() == nil {
		return l, nil, nil
	}
	if err != nil {
		return l, nil, err
	}
	var meta events.DocMeta
	for _, rev := range slices.Backward(all.Revisions) {
		if !rev.Deleted {
			meta = rev.Meta
			break
		}
	}
	last := all.Last()
	l.First, l.Last, l.Revisions = all.Revisions[0].Offset, all.Head, len(all.Revisions)
	l.Title, l.Owner, l.Layer = meta.Title, meta.Owner, meta.Layer
	l.Deleted, l.Reason, l.RenamedTo, l.ContentType = last.Deleted, last.Reason, last.RenamedTo, last.ContentType
	l.UpdatedAt, _ = last.Time.Time()
	if last.Deleted {
		return l, nil, nil
	}
	l.ExpiresAt, _ = meta.ExpiresAt.Time()
	rec, err := st.Log.Record(ctx, last.Offset)
	if err == nil {
		rec, err = projector.Resolve(ctx, st.Log, rec, st.config.MaxValue)
	}
	if events.IsDamage(err) {
		return l, meta.Links, nil // it exists but cannot be read
	}
	l.Bytes, l.SHA256 = int64(len(rec.Data)), hashOf(rec.Data)
	return l, meta.Links, err
}

// Linked is a link between two subjects.
type Linked struct {
	From     events.Subject // the document that has the link
	Link     events.Link    // as stored in the document
	To       events.Subject // the present target, under its latest name
	Dangling bool           // no such document or session exists
}

// Links returns the links of a document at head.
func (d *Documents) Links(ctx context.Context, kind, id string) ([]Linked, error) {
	sub, err := d.subject(kind, id)
	if err != nil {
		return nil, err
	}
	now, err := d.st.newest(ctx, sub)
	if err == nil && !now.exists {
		err = fmt.Errorf("%s: %w", sub.Name(), ErrNotFound)
	}
	if err != nil {
		return nil, err
	}
	var list []Linked
	for _, l := range now.rev.Meta.Links {
		to, exists, err := d.st.follow(ctx, sub.Namespace, l.To)
		if err != nil {
			return nil, err
		}
		list = append(list, Linked{From: sub, Link: l, To: to, Dangling: !exists})
	}
	return list, nil
}

// Backlinks returns the links that lead to a document or session, including links to its earlier names, but not the
// link of its own renames. [Documents.List] returns the linking documents by pages.
func (d *Documents) Backlinks(ctx context.Context, to events.Subject) ([]Linked, error) {
	if err := to.Validate(); err != nil {
		return nil, err
	}
	from, _, err := d.List(ctx, projector.DocumentQuery{Link: to.String()})
	if err != nil {
		return nil, err
	}
	var list []Linked
	for _, doc := range from {
		links, err := d.Links(ctx, doc.Subject.Kind, doc.Subject.ID)
		if errors.Is(err, ErrNotFound) {
			continue // deleted since it was listed
		}
		if err != nil {
			return nil, err
		}
		other := func(l Linked) bool { return l.To.Kind != to.Kind || l.To.ID != to.ID || l.Link.Rel == relRenamed }
		list = append(list, slices.DeleteFunc(links, other)...)
	}
	return list, nil
}

// follow returns the present target of a link, and whether it exists.
func (st *Store) follow(ctx context.Context, ns, link string) (to events.Subject, exists bool, err error) {
	if to, err = events.ParseSubject(ns, link); err != nil {
		return to, false, err
	}
	if to.IsSession() {
		_, err := st.Log.Last(ctx, to)
		if errors.Is(err, ErrNotFound) {
			return to, false, nil
		}
		if events.IsDamage(err) {
			err = nil // it exists but cannot be read
		}
		return to, err == nil, err
	}
	now, err := lastName(ctx, to, events.Subject{}, st.newest)
	return now.sub, now.exists, err
}

// haveLink reports whether one of links has a relation ("": any) and leads to a subject, under its name or an earlier
// one.
func (st *Store) haveLink(ctx context.Context, links []events.Link, to events.Subject, rel string) (bool, error) {
	for _, l := range links {
		sub, err := events.ParseSubject(to.Namespace, l.To)
		if err != nil || rel != "" && l.Rel != rel {
			continue
		}
		if !sub.IsSession() {
			now, err := lastName(ctx, sub, to, st.newest)
			if err != nil {
				return false, err
			}
			sub = now.sub
		}
		if sub == to {
			return true, nil
		}
	}
	return false, nil
}

// lastName loads a document under its latest name. It ends at the name stop without loading that.
func lastName(ctx context.Context, sub, stop events.Subject, now look) (newest, error) {
	for range projector.MaxRenames {
		if sub == stop {
			break
		}
		n, err := now(ctx, sub)
		if err != nil || n.rev.RenamedTo == "" {
			return n, err
		}
		if sub, _, err = n.rev.RenamedTo.Parse(sub.Namespace); err != nil {
			return n, err
		}
	}
	return newest{sub: sub}, nil
}

// look is a function that returns the present state of a document.
type look func(context.Context, events.Subject) (newest, error)

// guards checks the links of a document before it is written. It returns a guard for each document above it, which must
// not change until the write.
func (d *Documents) guards(ctx context.Context, sub events.Subject, meta events.DocMeta) ([]log.Part, error) {
	var parts []log.Part
	above := func(ctx context.Context, sub events.Subject) (newest, error) {
		now, err := d.st.newest(ctx, sub)
		parts = append(parts, log.Part{Subject: sub, Expect: log.At(now.last)})
		return now, err
	}
	err := d.st.checkLinks(ctx, sub, meta, d.st.newest, above)
	return parts, err
}

// checkLinks refuses links from the project's layer into the personal one, and parent links that form a cycle. It loads
// parents with above, so that the caller can guard them.
func (st *Store) checkLinks(ctx context.Context, sub events.Subject, meta events.DocMeta, now, above look) error {
	for i, l := range meta.Links {
		to, err := events.ParseSubject(sub.Namespace, l.To)
		if err != nil {
			return err
		}
		if meta.Layer != layerProject {
			continue
		}
		layer, err := st.layerOf(ctx, to, now)
		if err != nil {
			return err
		}
		if layer == layerPersonal {
			return &events.InvalidError{Field: fmt.Sprintf("links[%d].to", i), Reason: fmt.Sprintf("%s is of the layer personal, so %s of the layer project cannot link to it", to.Name(), sub.Name())}
		}
	}
	return checkParents(ctx, sub, meta, above)
}

// Layers that documents and sessions are of.
const (
	layerProject  = "project"
	layerPersonal = "personal"
)

// layerOf returns the layer of a document or session, "" if it does not exist.
func (st *Store) layerOf(ctx context.Context, sub events.Subject, now look) (string, error) {
	if sub.IsSession() {
		o, err := st.loader.Peek(ctx, sub)
		if err != nil {
			return "", err
		}
		return o.Ledger().Text("layer"), nil
	}
	n, err := lastName(ctx, sub, events.Subject{}, now)
	return n.rev.Meta.Layer, err
}

// maxAbove bounds how many documents may be above one: each of them is loaded.
const maxAbove = maxTx - 1

// checkParents refuses parents that have the document above them.
func checkParents(ctx context.Context, sub events.Subject, meta events.DocMeta, above look) error {
	seen := map[events.Subject]bool{}
	for next := parents(sub.Namespace, meta); len(next) > 0; next = next[1:] {
		p := next[0]
		switch {
		case p == sub:
			return &events.InvalidError{Field: "links", Reason: fmt.Sprintf("%s would be its own parent, directly or through others", sub.Name())}
		case seen[p]:
			continue
		case len(seen) == maxAbove:
			return &log.SizeError{Index: -1, What: "documents above " + sub.Name(), Size: len(seen) + 1, Max: maxAbove}
		}
		seen[p] = true
		now, err := above(ctx, p)
		if err != nil {
			return err
		}
		next = append(next, parents(sub.Namespace, now.rev.Meta)...)
		if to, _, err := now.rev.RenamedTo.Parse(sub.Namespace); now.rev.RenamedTo != "" && err == nil {
			next = append(next, to)
		}
	}
	return nil
}

// parents returns the parents in a document's links.
func parents(ns string, meta events.DocMeta) (list []events.Subject) {
	for _, l := range meta.Links {
		if to, err := events.ParseSubject(ns, l.To); l.Rel == relParent && err == nil && !to.IsSession() {
			list = append(list, to)
		}
	}
	return list
}
