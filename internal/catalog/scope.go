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

// The column scope of a turn holds two words, one for its session and one for its day. A search for frequent words in
// few sessions or days also matches these words, so it need not read all turns that contain the search words.

// maxScope is the maximum number of sessions or days that a search matches like this. With more, hits are dense enough
// for the search to end soon.
const maxScope = 200

// sessionWord returns the word for a session. Another session may share it.
func sessionWord(sub events.Subject) string {
	h := fnv.New64a()
	fmt.Fprintf(h, "%s\x00%s", sub.Namespace, sub.ID)
	return fmt.Sprintf("s%016x", h.Sum64())
}

// dayWord returns the word for the day of a time.
func dayWord(at events.Timestamp) string {
	return "d" + strings.ReplaceAll(dayOf(at), "-", "")
}

// narrow adds the scope of a lookup to the FTS5 query. It returns "" if no session matches the lookup.
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

// sessions returns the words for the sessions of a lookup. It returns false if the lookup includes all sessions, or too
// many.
func (l Lookup) sessions(ctx context.Context, conn *sql.Conn) (words []string, narrowed bool, err error) {
	if l.Session != "" {
		return []string{sessionWord(events.Session(l.Namespace, l.Session))}, true, nil
	}
	kind := l.Kind
	if kind == events.KindItem {
		kind = "" // the catalog has no items
	}
	where, args := conditions([]sqlCondition{{"namespace=?", l.Namespace}, {"kind=?", kind}, {"project=?", l.Project}, {"cwd=?", l.CWD}})
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

// days returns the words for the days of a lookup. It returns nil if the lookup has no start or includes too many days.
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

// laterThan returns word prefixes of all days later than a day. Only turns of a producer with a wrong clock have them.
func laterThan(day string) (beginnings []string) {
	for i := 1; i < len(day); i++ {
		for digit := day[i] + 1; digit <= '9'; digit++ {
			beginnings = append(beginnings, day[:i]+string(rune(digit))+"*")
		}
	}
	return beginnings
}
