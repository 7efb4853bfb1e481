package catalog

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/projector"
)

// Documents returns a page of the documents that a query selects, and where the next page begins, or "". It leaves out
// documents that have expired by the time of the newest record in the view. An After that is not from this list, or a
// Link that is not a subject, is an *events.InvalidError.
func (r Reader) Documents(ctx context.Context, q projector.DocumentQuery) (list []projector.DocumentListed, next string, err error) {
	q.Namespace = cmp.Or(q.Namespace, events.DefaultNamespace)
	p := documentPage{r: r, q: q}
	if p.after, p.below, err = q.Begin(); err != nil {
		return nil, "", err
	}
	if q.Link != "" {
		if p.link, err = events.ParseSubject(q.Namespace, q.Link); err != nil {
			return nil, "", err
		}
	}
	kinds, err := p.begin(ctx)
	if err != nil {
		return nil, "", r.wrap(err)
	}
	for _, kind := range kinds {
		if err := p.read(ctx, kind); err != nil {
			return nil, "", r.wrap(err)
		}
		if !q.Newest && p.full() {
			break
		}
	}
	list, next = q.Page(p.list)
	return list, next, nil
}

// documentPage is a page under construction. It is read kind by kind, so that each statement can use an index.
type documentPage struct {
	r     Reader
	q     projector.DocumentQuery
	after events.Subject // the page begins after this document
	below events.Offset  // with Newest, the page begins below this offset; 0: at the top
	link  events.Subject
	where []string // conditions in addition to namespace and kind, which are ?1 and ?2
	args  []any
	list  []projector.DocumentListed
}

// begin determines the conditions for all kinds, and returns the kinds to read.
func (p *documentPage) begin(ctx context.Context) ([]string, error) {
	p.add("revisions>0")
	if !p.q.Deleted {
		c, _, err := readCursor(ctx, p.r.db, p.r.view)
		if err != nil {
			return nil, err
		}
		p.add("deleted=0 AND (expires_at='' OR expires_at>?)", string(events.TimestampOf(c.Recorded)))
	}
	if p.q.Owner != "" {
		p.add("owner=?", p.q.Owner)
	}
	if p.q.Layer != "" {
		p.add("layer=?", p.q.Layer)
	}
	if p.q.Prefix != "" {
		p.add("id>=?", p.q.Prefix)
		if end := behindPrefix(p.q.Prefix); end != "" {
			p.add("id<?", end)
		}
	}
	if p.q.Link != "" {
		if err := p.addLink(ctx); err != nil {
			return nil, err
		}
	}
	return p.kinds(ctx)
}

func (p *documentPage) add(condition string, args ...any) {
	p.where, p.args = append(p.where, condition), append(p.args, args...)
}

// behindPrefix returns the first text behind all texts with a prefix, or "".
func behindPrefix(prefix string) string {
	b := []byte(prefix)
	for n := len(b) - 1; n >= 0; n-- {
		if b[n] < 0xff {
			b[n]++
			return string(b[:n+1])
		}
	}
	return ""
}

// addLink selects documents with a link to p.link, under any of its names.
func (p *documentPage) addLink(ctx context.Context) error {
	names, err := p.r.names(ctx, p.link)
	if err != nil {
		return err
	}
	var args []any
	for _, name := range names {
		args = append(args, name)
	}
	condition := "id IN (SELECT id FROM links WHERE namespace=?1 AND kind=?2 AND to_subject IN (" + placeholders(len(names)) + ")"
	if p.q.Rel != "" {
		condition, args = condition+" AND rel=?", append(args, p.q.Rel)
	}
	p.add(condition+")", args...)
	return nil
}

// names returns the current and former names of a subject. It follows at most projector.MaxRenames renames, and lists
// each name once.
func (r Reader) names(ctx context.Context, sub events.Subject) ([]string, error) {
	names := []string{sub.String()}
	for step, from := 0, 0; step < projector.MaxRenames && from < len(names); step++ {
		upto := len(names)
		for _, name := range names[from:upto] {
			rows, err := r.db.QueryContext(ctx, `SELECT l.kind, l.id FROM links l JOIN documents d USING(namespace, kind, id)
				WHERE l.namespace=? AND l.to_subject=? AND l.rel=? AND d.deleted=1`, sub.Namespace, name, renamedTo)
			err = each(rows, err, func() error {
				before := events.Subject{Namespace: sub.Namespace}
				err := rows.Scan(&before.Kind, &before.ID)
				if !slices.Contains(names, before.String()) {
					names = append(names, before.String())
				}
				return err
			})
			if err != nil {
				return nil, err
			}
		}
		from = upto
	}
	return names, nil
}

// kinds returns the kinds to read, in order.
func (p *documentPage) kinds(ctx context.Context) ([]string, error) {
	if p.q.Kind != "" {
		return []string{p.q.Kind}, nil
	}
	var list []string
	for kind := p.after.Kind; ; {
		from := ">"
		if kind != "" && len(list) == 0 {
			from = ">=" // the rest of that kind
		}
		err := p.r.db.QueryRowContext(ctx, "SELECT coalesce(min(kind), '') FROM documents WHERE namespace=? AND kind"+from+"?", p.q.Namespace, kind).Scan(&kind)
		if err != nil || kind == "" {
			return slices.DeleteFunc(list, func(kind string) bool { return kind == events.KindBlob }), err
		}
		list = append(list, kind)
	}
}

// read reads the documents of a kind. It reads one more than fits, to detect another page.
func (p *documentPage) read(ctx context.Context, kind string) error {
	where, args := append([]string{"namespace=?1", "kind=?2"}, p.where...), append([]any{p.q.Namespace, kind}, p.args...)
	order, room := "id", p.q.Limit+1-len(p.list)
	switch {
	case p.q.Newest:
		order, room = "head_offset DESC", p.q.Limit+1
		if p.below > 0 {
			where, args = append(where, "head_offset<?"), append(args, int64(p.below))
		}
	case p.after.Kind > kind:
		return nil
	case p.after.Kind == kind:
		where, args = append(where, "id>?"), append(args, p.after.ID)
	}
	text := "SELECT " + documentColumns + " FROM documents WHERE " + strings.Join(where, " AND ") + " ORDER BY " + order
	if p.q.Limit > 0 {
		text += fmt.Sprintf(" LIMIT %d", room)
	}
	rows, err := p.r.db.QueryContext(ctx, text, args...)
	return each(rows, err, func() error {
		var d document
		err := rows.Scan(d.columns()...)
		p.list = append(p.list, d.listed())
		return err
	})
}

func (p *documentPage) full() bool { return p.q.Limit > 0 && len(p.list) > p.q.Limit }
