package catalog

import (
	"database/sql"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/tallylog/tally/internal/testkit"
)

// wordTable opens an empty table that is tokenized like turns.
func wordTable(t testing.TB) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", "file::memory:")
	must(t, err)
	t.Cleanup(func() { db.Close() })
	db.SetMaxOpenConns(1)
	_, err = db.ExecContext(t.Context(), strings.ReplaceAll(searchForm.schema, "{set}", ""))
	must(t, err)
	return db
}

// Any text is a valid FTS5 query or has no word. A text in quotes finds itself.
func FuzzMatch(f *testing.F) {
	for _, text := range []string{"a b", `"a b" c*`, "a OR b -c", `-"a"* OR`, "((a", `"`, "a\x00b", "a:b^2 NEAR(c, 3)", "{x y}: z + w", "生日 蛋糕*", "é\u0301", "\u19b0 -a", "* -a", "--", "ab\xffc", "a\u200bb", strings.Repeat("a OR ", 20) + "b", strings.Repeat("-a ", 20) + "b"} {
		f.Add(text)
	}
	db := wordTable(f)
	f.Fuzz(func(t *testing.T, text string) {
		ctx := t.Context()
		tx, err := db.BeginTx(ctx, nil)
		must(t, err)
		defer tx.Rollback()
		count := func(query string) (n int, isWord bool) {
			match, err := matchOf(query)
			if isInvalid(err) {
				return 0, false
			}
			must(t, err)
			if err := tx.QueryRowContext(ctx, "SELECT count(*) FROM turns WHERE turns MATCH ?", match).Scan(&n); err != nil {
				t.Fatalf("search for %q as %q: %v", query, match, err)
			}
			return n, true
		}
		_, err = tx.ExecContext(ctx, "INSERT INTO turns(text) VALUES(?)", spreadLetters(text))
		must(t, err)
		count(text)
		whole := `"` + strings.ReplaceAll(text, `"`, " ") + `"`
		if n, isWord := count(whole); isWord && n != 1 && utf8.ValidString(text) {
			t.Errorf("the quoted text %q did not find itself", text)
		}
		if n, isWord := count(whole + " -" + whole); isWord && n != 0 {
			t.Errorf("%q is excluded, but was found", text)
		}
	})
}

// Every character that isLetter accepts is part of a word for FTS5. So FTS5 drops no term that matchOf keeps, which
// would invert excluded terms.
func TestEveryLetterIsAWord(t *testing.T) {
	testkit.NotUnderRace(t)
	db := wordTable(t)
	var all strings.Builder
	letters := 0
	for r := rune(1); r <= unicode.MaxRune; r++ {
		if isLetter(r) && !unicode.Is(unicode.Co, r) || r == '\ue000' || r == '\U0010fffd' { // private-use characters all behave alike
			all.WriteString(" " + string(r))
			letters++
		}
	}
	_, err := db.ExecContext(t.Context(), "INSERT INTO turns(text) VALUES(?)", all.String())
	must(t, err)
	_, err = db.ExecContext(t.Context(), "CREATE VIRTUAL TABLE found USING fts5vocab(turns, row)")
	must(t, err)
	n := 0
	must(t, db.QueryRowContext(t.Context(), "SELECT sum(cnt) FROM found").Scan(&n))
	if n != letters || letters < 100_000 {
		t.Errorf("of %d letters %d are part of words", letters, n)
	}
}

// A pasted page of text is a valid query.
func TestLongQuery(t *testing.T) {
	testkit.NotUnderRace(t)
	db := wordTable(t)
	for _, part := range []string{"a ", "a OR ", "-a ", `"a b"* `, "(\"[ ", "蛋"} {
		match, err := matchOf("b " + strings.Repeat(part, 3000) + "b")
		must(t, err)
		var n int
		if err := db.QueryRowContext(t.Context(), "SELECT count(*) FROM turns WHERE turns MATCH ?", match).Scan(&n); err != nil {
			t.Errorf("%q, 3000 times: %v", part, err)
		}
	}
}

// Letters of scripts without spaces between words are separated, and the original text can be restored.
func TestSpread(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"", ""}, {"plain, éà", "plain, éà"}, {"蛋", "蛋"}, {"a蛋b", "a|蛋|b"}, {"生日 x", "生|日| x"}, {"ケーキ", "ケ|ー|キ"}, {"생일", "생일"},
	} {
		if got := strings.ReplaceAll(spreadLetters(c.text), string(apart), "|"); got != c.want {
			t.Errorf("spread(%q) = %q, want %q", c.text, got, c.want)
		}
		if got := joined(spreadLetters(c.text)); got != c.text {
			t.Errorf("the spread text of %q reads back as %q", c.text, got)
		}
	}
}
