package catalog

import (
	"database/sql"
	"reflect"
	"strings"
)

// each calls scan for every row of what a query returned.
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

// values returns what pointers to the columns of a row point to, to be stored.
func values(columns []any) []any {
	list := make([]any, len(columns))
	for i, column := range columns {
		list[i] = reflect.ValueOf(column).Elem().Interface()
	}
	return list
}

// insert is the statement that stores a row of n columns in a table of the set.
func insert(table string, n int) string {
	return "INSERT OR REPLACE INTO " + table + "{set} VALUES(" + placeholders(n) + ")"
}

func placeholders(n int) string { return strings.TrimSuffix(strings.Repeat("?,", n), ",") }
