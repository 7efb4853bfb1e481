package catalog

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
)

// tableOrders lists the orders for comparing the rows of a table: in general its primary key. Turns are compared in
// insertion order, which needs no sorting. The turns of a session that was in quarantine were inserted later than a
// fold from the start inserts them, hence the second order.
var tableOrders = map[string][]string{
	"sessions": {"session"}, "marks": {"session, number"}, "runs": {"session, kind, id"},
	"costs": {"session, day, model, run_kind, run_id"}, "documents": {"namespace, kind, id"},
	"links":     {"namespace, kind, id, rel, to_subject"},
	"responses": {"namespace, response, output_tokens, offset"}, "progress": {"session, run_kind, run_id, offset"}, "counts": {"namespace"},
	"turns": {"rowid", "offset, thread, number"},
	"usage": {"namespace, response, output_tokens, offset, thread, number"}, "calls": {"namespace, call, offset, thread, number, part"},
	"days": {"namespace, session, day, model"}, "strip": {"namespace, session, block"},
	"queues": {"namespace, id"}, "items": {"namespace, queue, id"}, "waits": {"namespace, queue, id, after"},
	"inboxes": {"namespace, id"}, "messages": {"namespace, inbox, offset, number"}, "questions": {"namespace, asker, asked, id"},
	"agents": {"namespace, id"}, "flows": {"namespace, id"}, "owned": {"namespace, kind, id"}, "gone": {"namespace, owner"},
	"due": {"what, namespace, kind, id, about, number"},
}

// difference describes the first place where two files have different rows of a table. It returns "" if the rows are
// equal in one of the table's orders. The rows of have are expected to equal those of want.
func difference(ctx context.Context, have, want querier, table, haveSet, wantSet string) (diff string, err error) {
	return differenceIn(ctx, have, want, table, haveSet, wantSet, tableOrders[table]...)
}

// ownDifference is difference for a table of an own view. Its rows are compared in the order of all their columns,
// because their keys are unknown.
func ownDifference(ctx context.Context, have, want querier, table string) (string, error) {
	var columns int
	if err := want.QueryRowContext(ctx, "SELECT count(*) FROM pragma_table_info(?)", table).Scan(&columns); err != nil {
		return "", err
	}
	order := "1"
	for n := range columns - 1 {
		order += fmt.Sprintf(", %d", n+2)
	}
	return differenceIn(ctx, have, want, table, current, current, order)
}

func differenceIn(ctx context.Context, have, want querier, table, haveSet, wantSet string, orders ...string) (diff string, err error) {
	for _, order := range orders {
		if diff, err = differenceOrdered(ctx, have, want, table, haveSet, wantSet, order); diff == "" || err != nil {
			break
		}
	}
	return diff, err
}

func differenceOrdered(ctx context.Context, have, want querier, table, haveSet, wantSet, order string) (string, error) {
	h, err := openTable(ctx, have, table+haveSet, order)
	if err != nil {
		return "", err
	}
	defer h.Close()
	w, err := openTable(ctx, want, table+wantSet, order)
	if err != nil {
		return "", err
	}
	defer w.Close()
	for n := 1; ; n++ {
		a, err := h.next()
		if err != nil {
			return "", err
		}
		b, err := w.next()
		switch {
		case err != nil:
			return "", err
		case a == nil && b == nil:
			return "", nil
		case a == nil:
			return fmt.Sprintf("table %s ends before row %d, %s", table, n, b.name()), nil
		case b == nil:
			return fmt.Sprintf("table %s has row %d, %s, and should not", table, n, a.name()), nil
		}
		for i := range a {
			if !a[i].equals(b[i]) {
				return fmt.Sprintf("table %s, row %d, %s: column %s is %v, should be %v", table, n, b.name(), h.columns[i], a[i], b[i]), nil
			}
		}
	}
}

// tableRows iterates over the rows of a table.
type tableRows struct {
	*sql.Rows
	columns []string
}

func openTable(ctx context.Context, q querier, table, order string) (*tableRows, error) {
	rows, err := q.QueryContext(ctx, "SELECT * FROM "+table+" ORDER BY "+order)
	if err != nil {
		return nil, err
	}
	columns, err := rows.Columns()
	if err != nil {
		rows.Close()
		return nil, err
	}
	return &tableRows{rows, columns}, nil
}

// storedRow holds the stored columns of a row.
type storedRow []cell

type cell struct{ value any }

// next returns the next row, or nil after the last one.
func (t *tableRows) next() (storedRow, error) {
	if !t.Next() {
		return nil, t.Err()
	}
	r, targets := make(storedRow, len(t.columns)), make([]any, len(t.columns))
	for i := range r {
		targets[i] = &r[i].value
	}
	return r, t.Scan(targets...)
}

// name returns enough columns to identify a row.
func (r storedRow) name() string { return fmt.Sprint(r[:min(len(r), 3)]) }

func (c cell) equals(d cell) bool {
	a, isBytes := c.value.([]byte)
	b, both := d.value.([]byte)
	if isBytes && both {
		return bytes.Equal(a, b)
	}
	return isBytes == both && c.value == d.value
}

func (c cell) String() string {
	switch v := c.value.(type) {
	case []byte:
		return fmt.Sprintf("%d bytes %.20x", len(v), v)
	case string:
		return fmt.Sprintf("%.60q", v)
	}
	return fmt.Sprint(c.value)
}
