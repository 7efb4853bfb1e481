package erratadir_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/internal/testkit/layouttest"
	"github.com/tallylog/tally/stores/errata"
	"github.com/tallylog/tally/stores/errata/erratadir"
)

// A file to which lines are appended keeps its bytes: lines that are not prompts, a torn line, white space, a byte
// order mark. New lines follow them.
func TestAppendedFiles(t *testing.T) {
	const name = "prompt_history.jsonl"
	check := func(t *testing.T, before string) {
		t.Helper()
		ctx, st, files := t.Context(), openAPI(t), map[string]string{name: before}
		dir := folder(t, files)
		bring := func() layouts.Report {
			replaceTree(t, dir, files)
			r, err := erratadir.Layout{}.Import(ctx, st, dir, layouts.ImportOptions{})
			must(t, err)
			return r
		}
		bring()
		for n := range 3 {
			had := need(errata.PromptsOf(st).List(ctx))
			if added, err := errata.PromptsOf(st).Record(ctx, fmt.Sprint("new ", n)); !added || err != nil {
				t.Fatal(added, err)
			}
			after, _ := layouttest.Exported(t, st, erratadir.Layout{})
			rest, ok := strings.CutPrefix(after[name], before)
			if want := fmt.Sprintf("\"new %d\"", n); !ok || strings.TrimSpace(rest) != want || !strings.HasSuffix(rest, "\n") || strings.Trim(before, "\ufeff") != "" && !strings.HasSuffix(before, "\n") && !strings.ContainsAny(rest[:1], "\r\n") {
				t.Fatalf("%q became %q", before, after[name])
			}
			files, before = after, after[name]
			if r := bring(); r.Events != 0 {
				t.Fatalf("the import of the export of %q added %d events", before, r.Events)
			}
			if list := need(errata.PromptsOf(st).List(ctx)); !slices.Equal(list, append([]string{fmt.Sprint("new ", n)}, had...)) {
				t.Fatalf("the prompts of %q are %q", before, list)
			}
			if n == 1 { // a person appends a line that is not JSON
				before += "by hand\n"
				files[name] = before
				bring()
			}
		}
	}
	for kind, before := range map[string]string{"text": "\"a\"\nnot JSON\n\"b\"\n", "torn": "\"a\"\n\"tor", "only text": "not JSON", "object": "{\"prompt\":\"a\"}\n", "empty lines": "\n\n\"a\"\n\n",
		"CRLF": "\"a\"\r\nno\r\n", "mixed ends": "\"a\"\r\nno\n\"b\"\n", "BOM": "\ufeff\"a\"\nno\n", "only BOM": "\ufeff", "NUL": "\"a\"\n\x00\x00\n", "NUL at the end": "\"a\"\n\x00\x00", "UTF-16": "\xff\xfe\"\x00a\x00\"\x00\n\x00",
		"not UTF-8": "\"\xff\"\n", "blanks": " \"a\" \n\t\n", "two of one line": "\"a\"\"b\"\n", "null": "null\n", "none": "", "good": "\"a\"\n\"b\"\n", "good, torn": "\"a\"\n\"b\""} {
		t.Run("B-46 an append rewrites no line that is there/"+kind, func(t *testing.T) { check(t, before) })
	}
	t.Run("B-46 an append rewrites no line that is there/at random", func(t *testing.T) {
		random := rand.New(rand.NewPCG(46, 1))
		parts := []string{"\"a\"", "\"b\\u0041\"", "no", "{", "\x00", "\xff", " ", "\n", "\n", "\n", "\r\n", "\r"}
		for range layouttest.Seeds(60) {
			var b strings.Builder
			for range random.IntN(12) {
				b.WriteString(parts[random.IntN(len(parts))])
			}
			check(t, b.String())
		}
	})
}

func need[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
