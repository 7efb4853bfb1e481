package catalog

import (
	"context"
	"database/sql"
	"fmt"
	"hash/fnv"
	"strings"
	"time"

	"github.com/tallylog/tally/events"
)

// The column scope of a turn has two words, for its session and its day. A search for what
// is frequent, in few sessions or days, looks them up beside the words that are searched
// for, and does not go through all turns that have those.

// maxScope is how many sessions or days are looked up so. Among more the hits are dense
// enough for the search to end soon.
const maxScope = 200

// sessionWord is the word for a session. Another one may have it too.
func sessionWord(sub events.Subject) string {
	h := fnv.New64a()
	fmt.Fprintf(h, "%s\x00%s", sub.Namespace, sub.ID)
	return fmt.Sprintf("s%016x", h.Sum64())
}

// dayWord is the word for the day of a time.
func dayWord(at events.Timestamp) string {
	return "d" + strings.ReplaceAll(dayOf(at), "-", "")
}

// narrow adds the scope of a lookup to what is to be matched. It returns "" if nothing can
// be: no session is like that.
func (l Lookup) narrow(ctx context.Context, conn *sql.Conn, match string) (string, error) {
	match = "text : (" + match + ")"
	sessions, narrowed, err := l.sessions(ctx, conn)
	if err != nil || narrowed && len(sessions) == 0 {
		return "", err
	}
	if narrowed {
		match += scoped(sessions)
	}
	if days := l.days(time.Now()); days != nil {
		match += scoped(days)
	}
	return match, nil
}

func scoped(words []string) string { return " AND scope : (" + strings.Join(words, " OR ") + ")" }

// sessions returns the words for the sessions that a lookup is about; false if that is
// about all of them, or too many.
func (l Lookup) sessions(ctx context.Context, conn *sql.Conn) (words []string, narrowed bool, err error) {
	if l.Session != "" {
		return []string{sessionWord(events.Session(l.Namespace, l.Session))}, true, nil
	}
	where, args := conditions([]condition{{"namespace=?", l.Namespace}, {"kind=?", l.Kind}, {"project=?", l.Project}, {"cwd=?", l.CWD}})
	if len(where) == 1 {
		return nil, false, nil
	}
	rows, err := conn.QueryContext(ctx, "SELECT id FROM lists.sessions WHERE "+strings.Join(where, " AND ")+" LIMIT ?", append(args, maxScope+1)...)
	err = each(rows, err, func() error {
		var id string
		err := rows.Scan(&id)
		words = append(words, sessionWord(events.Session(l.Namespace, id)))
		return err
	})
	return words, len(words) <= maxScope, err
}

// days returns the words for the days that a lookup is about, nil if it has no beginning or
// is about too many.
func (l Lookup) days(now time.Time) (words []string) {
	if l.Since.IsZero() {
		return nil
	}
	last := l.Until.UTC()
	if l.Until.IsZero() {
		last = now.UTC().AddDate(0, 0, 1)
		words = laterThan(dayWord(events.TimestampOf(last)))
	}
	known := len(words)
	for day := l.Since.UTC().Truncate(24 * time.Hour); !day.After(last); day = day.AddDate(0, 0, 1) {
		if words = append(words, dayWord(events.TimestampOf(day))); len(words) > known+maxScope {
			return nil
		}
	}
	return words
}

// laterThan returns beginnings of words: those of all days that are later than one, which
// only the clock of a producer that is wrong can say.
func laterThan(day string) (beginnings []string) {
	for i := 1; i < len(day); i++ {
		for digit := day[i] + 1; digit <= '9'; digit++ {
			beginnings = append(beginnings, day[:i]+string(rune(digit))+"*")
		}
	}
	return beginnings
}
