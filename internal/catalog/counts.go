package catalog

import (
	"context"
	"database/sql"
	"errors"
)

// countsSchema defines the table of counts, so that a count of many rows does not read them.
const countsSchema = `
CREATE TABLE counts{set}(
	namespace TEXT PRIMARY KEY, sessions INTEGER NOT NULL, documents INTEGER NOT NULL) WITHOUT ROWID;
`

// counts are the changes of a namespace's counts in a commit.
type counts struct{ sessions, documents int64 }

// storeCounts adds the changes of the commit: rows that are erased, and rows that are new.
func (c *Catalog) storeCounts(ctx context.Context) error {
	changes := make(map[string]counts)
	change := func(namespace string, sessions, documents int64) {
		n := changes[namespace]
		changes[namespace] = counts{n.sessions + sessions, n.documents + documents}
	}
	for sub, key := range c.gone {
		if key > 0 {
			change(sub.Namespace, -1, 0)
		}
	}
	for _, s := range c.dirty {
		if !s.stored {
			change(s.Namespace, 1, 0)
		}
	}
	for sub, d := range c.documents {
		if !d.isRow {
			change(sub.Namespace, 0, 1)
		}
	}
	for namespace, n := range changes {
		if n == (counts{}) {
			continue
		}
		if err := c.run(ctx, `INSERT INTO counts{set} VALUES(?,?,?) ON CONFLICT DO UPDATE
			SET sessions=sessions+excluded.sessions, documents=documents+excluded.documents`, namespace, n.sessions, n.documents); err != nil {
			return err
		}
	}
	return nil
}

// Count returns how many sessions and documents a namespace has.
func (r Reader) Count(ctx context.Context, namespace string) (sessions, documents int, err error) {
	err = r.db.QueryRowContext(ctx, "SELECT sessions, documents FROM counts WHERE namespace=?", namespace).Scan(&sessions, &documents)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, 0, nil
	}
	return sessions, documents, r.wrap(err)
}
