package catalog

import (
	"database/sql"
	"reflect"
	"strings"
)

// each calls scan for every row of a query result.
func each(rows *sql.Rows, err error, scan func() error) error {
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := scan(); err != nil {
			return err
		}
	}
	return rows.Err()
}

// collect returns all rows of a query result. columns returns pointers to the columns of a row.
func collect[T any](rows *sql.Rows, err error, columns func(*T) []any) (list []T, _ error) {
	err = each(rows, err, func() error {
		list = append(list, *new(T))
		return rows.Scan(columns(&list[len(list)-1])...)
	})
	return list, err
}

// oneColumn returns a pointer to the only column of a row.
func oneColumn[T any](value *T) []any { return []any{value} }

// valuesOf returns the values behind pointers to columns.
func valuesOf(columns []any) []any {
	list := make([]any, len(columns))
	for i, column := range columns {
		list[i] = reflect.ValueOf(column).Elem().Interface()
	}
	return list
}

func placeholders(n int) string { return strings.TrimSuffix(strings.Repeat("?,", n), ",") }
