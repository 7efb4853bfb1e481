package catalog

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/tallylog/tally/events"
)

// Err returns why the view cannot be kept, or nil.
func (v View) Err() error {
	if v.open == nil {
		return fmt.Errorf("view %q: Own.View and Fold.View make views", v.Name)
	}
	return v.err
}

// Types returns the types of events that the view folds.
func (v View) Types() []events.Type { return slices.Clone(v.types) }

// Older returns the older types that these types read. They move with them.
func (v View) Older() []events.Type { return slices.Clone(v.older) }

// CheckOwn returns an error if one of the views that a program brings is wrong, or if two have the same name.
func CheckOwn(views []View) error {
	named := make(map[string]bool)
	for _, v := range Views(nil, nil) {
		named[v.Name] = true
	}
	for _, v := range views {
		if err := v.Err(); err != nil {
			return err
		}
		if !v.own || named[v.Name] {
			return fmt.Errorf("view %q: another view has this name", v.Name)
		}
		named[v.Name] = true
	}
	return nil
}

var (
	ownName   = regexp.MustCompile(`^[a-z0-9]([a-z0-9_-]{0,62}[a-z0-9])?$`) // a part of file names, also where case does not count
	tableName = regexp.MustCompile(`^[a-z][a-z0-9_]{0,62}$`)
)

// maxOwnVersion bounds the version of an own view.
const maxOwnVersion = 999_999

// check checks a definition.
func (o Own) check() error {
	switch {
	case !ownName.MatchString(o.Name):
		return errors.New("the name may have lower-case letters, digits, - and _, at most 64")
	case o.Version < 1 || o.Version > maxOwnVersion:
		return fmt.Errorf("version %d: want 1 to %d", o.Version, maxOwnVersion)
	case len(o.Types) == 0:
		return errors.New("it has no types of events")
	case len(o.Tables) == 0:
		return errors.New("it has no tables")
	case o.Fold == nil:
		return errors.New("Apply is missing")
	case o.Forget == nil:
		return errors.New("Forget is missing")
	}
	seen := make(map[string]bool)
	for _, t := range o.Types {
		if t.Name == "" || seen[t.Name] || !events.IsKnown(t.Name) && t.Moves != events.WithThread && t.Moves != events.InLedger {
			return fmt.Errorf("type %q: it is listed twice, or was not made by events.Define", t.Name)
		}
		seen[t.Name] = true
	}
	return o.checkSchema()
}

// checkSchema creates both sets of tables in memory.
func (o Own) checkSchema() error {
	for _, t := range o.Tables {
		switch {
		case !tableName.MatchString(t) || slices.Contains([]string{"views", "quarantine", shiftedTable}, t) || strings.HasPrefix(t, "sqlite_"):
			return fmt.Errorf("table %q cannot have this name", t)
		case !strings.Contains(o.Schema, t+"{set}"):
			return fmt.Errorf("the schema does not create table %s{set}: {set} ends the name of each table", t)
		}
	}
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		return err
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	ctx := context.Background()
	for _, set := range []string{current, nextSet} {
		if _, err := db.ExecContext(ctx, strings.ReplaceAll(o.Schema, "{set}", set)); err != nil {
			return fmt.Errorf("schema: %w", err)
		}
	}
	rows, err := db.QueryContext(ctx, "SELECT type, name FROM sqlite_schema WHERE name NOT LIKE 'sqlite_%'")
	made, err := collect(rows, err, func(m *[2]string) []any { return []any{&m[0], &m[1]} })
	if err != nil {
		return err
	}
	for _, m := range made {
		if m[0] != "table" {
			return fmt.Errorf("the schema creates the %s %s: want tables only, with indexes as UNIQUE(...)", m[0], m[1])
		}
		if !slices.Contains(o.Tables, strings.TrimSuffix(m[1], nextSet)) {
			return fmt.Errorf("the schema creates the table %s, which is not one of %s", m[1], strings.Join(o.Tables, ", "))
		}
	}
	if len(made) != 2*len(o.Tables) {
		return fmt.Errorf("the schema creates %d of %d tables", len(made)/2, len(o.Tables))
	}
	return nil
}

// maxStatements bounds the prepared statements of a file.
const maxStatements = 128

// allow refuses statements that do not belong into the transaction of a view: others than those that begin with one of
// the words, several in one text, and statements that name a table without its set.
func (v *ownView) allow(text string, words ...string) error {
	if v.statements[text] != nil {
		return nil
	}
	first, _, _ := strings.Cut(strings.Join(strings.Fields(text), " "), " ")
	switch {
	case !slices.Contains(words, strings.ToUpper(first)):
		return fmt.Errorf("statement %q: want %s", text, strings.Join(words, ", "))
	case strings.Contains(text, ";"):
		return fmt.Errorf("statement %q: want one statement, without a semicolon", text)
	case !strings.Contains(text, "{set}"):
		return fmt.Errorf("statement %q: {set} ends the name of each table", text)
	}
	if len(v.statements) >= maxStatements { // a program may put values into its texts
		for text, st := range v.statements {
			st.Close()
			delete(v.statements, text)
		}
	}
	return nil
}
