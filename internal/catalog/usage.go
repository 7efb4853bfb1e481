package catalog

import (
	"context"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/projector"
)

// Live counts the readable documents by owner and kind, over all namespaces. Blobs are not listed: their content counts
// for the documents that refer to them.
func (r Reader) Live(ctx context.Context) (list []projector.Live, err error) {
	rows, err := r.db.QueryContext(ctx, "SELECT owner, kind, count(*), sum(bytes) FROM documents WHERE revisions>0 AND NOT deleted AND kind NOT IN (?, ?) GROUP BY owner, kind",
		events.KindBlob, events.KindUnit)
	err = each(rows, err, func() error {
		var l projector.Live
		err := rows.Scan(&l.Owner, &l.Kind, &l.Documents, &l.Bytes)
		list = append(list, l)
		return err
	})
	return list, r.wrap(err)
}
