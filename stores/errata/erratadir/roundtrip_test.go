package erratadir_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/internal/testkit/layouttest"
	"github.com/tallylog/tally/stores/errata/erratadir"
)

// two is a session with two models, a failure, a selection and a rewind.
func two(id string) *session {
	return newSession(id, "claude", "gpt").ask("first <question> & more", "a1", "b1").last(func(s *summary) {
		s.Selected, s.Rating, s.Note, s.AppliedFiles = "gpt", "good", "nice", []string{"a.go"}
	}).ask("second", "a2", "").ask("third", "a3", "b3").rewind().ask("third", "a3!", "b3!")
}

// handmade returns folders of one session each, with unusual bytes, and the number of files that the state renders.
func handmade() map[string]struct {
	files map[string]string
	want  layouts.Files
} {
	type c = struct {
		files map[string]string
		want  layouts.Files
	}
	dir := "sessions/ses_1/"
	meta, cont := dir+"session_metadata.json", dir+"session_content.json"
	base := two("ses_1").files()
	exact := layouts.Files{Exact: 2}
	oneWhole := layouts.Files{Exact: 1, Whole: 1}
	swap := func(name, old, with string) map[string]string {
		if !strings.Contains(base[name], old) {
			panic("no " + old)
		}
		return layouttest.Change(base, name, strings.Replace(base[name], old, with, 1))
	}
	old := newSession("ses_1", "m").ask("q", "a")
	old.content.Runs[0].PromptHash = ""
	compacted := newSession("ses_1", "m").ask("q", "a").ask("r", "b")
	compacted.content.Histories["m"] = []originalTurn{{"user", "summary so far"}, {"assistant", "ok"}, {"user", "r"}, {"assistant", "b"}}
	cp := marshal(checkpoint{Prompt: "again & again", Timestamp: at(30), AdapterIDs: []string{"m"}, Responses: []response{{ModelID: "m", Interrupted: true}}})
	return map[string]c{
		"all kinds of rows":         {base, exact},
		"before any run":            {newSession("ses_1", "m").files(), layouts.Files{Exact: 1}},
		"no models":                 {newSession("ses_1").files(), layouts.Files{Exact: 1}},
		"runs as []":                {map[string]string{meta: strings.Replace(newSession("ses_1").files()[meta], `"runs":null`, `"runs":[]`, 1), cont: `{"runs":[]}`}, exact},
		"runs absent":               {map[string]string{meta: `{"id":"ses_1","created_at":"2026-01-02T03:04:05Z"}`, cont: `{}`}, exact},
		"runs null, no session":     {map[string]string{meta: newSession("ses_1").files()[meta], cont: `{"runs":null,"histories":{"m":[{"role":"user","content":"x"}]}}`}, exact},
		"histories empty":           {map[string]string{meta: newSession("ses_1").files()[meta], cont: `{"runs":null,"histories":{}}`}, exact},
		"histories null":            {map[string]string{meta: newSession("ses_1").files()[meta], cont: `{"runs":null,"histories":null}`}, exact},
		"a history null, one empty": {map[string]string{meta: newSession("ses_1").files()[meta], cont: `{"runs":null,"histories":{"a":null,"b":[],"c":[{"role":"user","content":"x"}]}}`}, exact},
		"models null in a run":      {swap(meta, `"models":["claude","gpt"],"selected"`, `"models":null,"selected"`), exact},
		"events null":               {swap(cont, `"events":[]`, `"events":null`), exact},
		"HTML and line separators":  {newSession("ses_1", "m").ask("<b>&\u2028\u2029</b>\x01\"\\", "\u00e9 \U0001f600 <>&").files(), exact},
		"unescaped HTML":            {swap(cont, `\u003cquestion\u003e \u0026`, `<question> &`), exact},
		"a rune that was cut":       {newSession("ses_1", "m").ask(strings.Repeat("é", 90), "a").files(), exact},
		"before prompt hashes":      {old.files(), exact},
		"compacted":                 {compacted.files(), exact},
		"contents out of step":      {map[string]string{meta: base[meta], cont: marshal(originalContent{SessionID: "ses_1", Runs: two("ses_1").content.Runs[1:]})}, exact},
		"a content without summary": {map[string]string{meta: newSession("ses_1").files()[meta], cont: base[cont]}, exact},
		"only content":              {map[string]string{cont: base[cont]}, layouts.Files{Exact: 1}},
		"equal runs twice":          {map[string]string{meta: marshal(metadata{ID: "ses_1", Runs: append(two("ses_1").meta.Runs, two("ses_1").meta.Runs...)})}, layouts.Files{Exact: 1}},
		"unfinished run":            {layouttest.Change(base, dir+"checkpoint.json", cp), layouts.Files{Exact: 3}},
		"recipe":                    {layouttest.Change(base, dir+"recipe.md", "# R\nversion: 1\n\n## Models\n- m\n"), layouts.Files{Exact: 3}},
		"members of a later writer": {map[string]string{meta: `{"id":"ses_1","x":{"a" :1},"runs":[{"timestamp":"t","y":[1, 2]}],"z":0}`, cont: `{"new":1,"runs":[{"prompt":"p","q":null}],"histories":{"m":[{"role":"user","content":"x","z":1}]},"more":[]}`}, oneWhole},
		"final newline and BOM":     {layouttest.Change(base, meta, base[meta]+"\n", cont, "\ufeff"+base[cont]), exact},
		"indented":                  {layouttest.Change(base, meta, indented(base[meta])), oneWhole},
		"numbers of any spelling":   {swap(meta, `0.000125`, `1.25e-4`), exact},
		"histories unsorted":        {layouttest.Change(base, cont, `{"runs":null,"histories":{"b":[],"a":[]}}`), oneWhole},
		"other id inside":           {swap(cont, `"session_id":"ses_1"`, `"session_id":"ses_2"`), exact},
		"zone offsets": {map[string]string{meta: `{"id":"ses_1","created_at":"2026-01-02T03:04:05.000000001+05:45","last_active_at":"2026-01-02T03:04:05.1-03:30","prompt_count":2,"runs":[` +
			`{"timestamp":"2026-01-02T03:04:05Z","prompt_hash":"ph_1","prompt_preview":"p","models":["m"]},{"timestamp":"2026-01-02T03:04:05.12-12:00","prompt_hash":"ph_2","prompt_preview":"q","models":["m"]},` +
			`{"timestamp":"2026-01-02T03:04:05.1+14:00","prompt_hash":"ph_2","prompt_preview":"","models":null,"type":"rewind"}]}`}, layouts.Files{Exact: 1}},
		"the oldest shape":       {map[string]string{meta: newSession("ses_1").files()[meta], cont: `{"runs":null,"histories":{"m":[{"Role":"user","Content":"Is there \u003clife\u003e?"},{"Role":"assistant","Content":""}]}}`}, exact},
		"files of somebody else": {layouttest.Change(base, dir+"notes.txt", "x\r\n", dir+"a/b.bin", "\x00\xff"), layouts.Files{Exact: 2, Whole: 2}},
	}
}

func indented(s string) string {
	data, err := json.MarshalIndent(json.RawMessage(s), "", "  ")
	if err != nil {
		panic(err)
	}
	return string(data)
}

// Each unusual folder is exported byte for byte, and a second import adds nothing.
func TestHandmade(t *testing.T) {
	if n := len(handmade()); n < 20 {
		t.Fatalf("found only %d sessions", n)
	}
	for name, c := range handmade() {
		t.Run("E-34/"+name, func(t *testing.T) {
			st, dir := openStore(t), folder(t, c.files)
			r := mustBeClean(t, st, dir)
			if r.Files != c.want || r.Added != 1 || r.Root != "proj" {
				t.Errorf("the report is %+v", r)
			}
			mustEqual(t, c.files, exported(t, st))
			if again := mustBeClean(t, st, dir); again.Events != 0 || again.Unchanged != 1 {
				t.Errorf("the report of a second import is %+v", again)
			}
		})
	}
}

// rootTree returns a data folder with everything in it.
func rootTree() map[string]string {
	files := map[string]string{
		"prompt_history.jsonl":         "\"first \\u003cquestion\\u003e \\u0026 more\"\n\"second\"\n\"third\"\n",
		"recipes.json":                 "{\n  \"cfg_v1_0\": {\n    \"name\": \"old\"\n  },\n  \"rcp_1\": \"# R\\nversion: 1\\n\"\n}",
		"recipes/mine.md":              "# Mine\nversion: 1\n\n## Constraints\nmax_steps: 0\n",
		"checkpoint.json":              marshal(checkpoint{Prompt: "headless", Timestamp: at(3), AdapterIDs: []string{}, Responses: nil}),
		"history.json":                 marshal(map[string][]oldTurn{"m": {{"user", "Is there life?"}, {"assistant", "Perhaps & perhaps not"}}, "n": nil}),
		"outputs/x_run_rpt_1/rep.json": "{\n  \"a\": 1\n}",
		"sessions/.lock":               "",
	}
	for _, s := range []*session{two("ses_1"), newSession("ses_2", "m").ask("second", "x"), newSession("ses_3")} {
		for name, data := range s.files() {
			files[name] = data
		}
	}
	return files
}

// A data folder with every kind of file is exported byte for byte, from any path that leads to it.
func TestRoot(t *testing.T) {
	files := rootTree()
	st, dir := openStore(t), folder(t, files)
	r := mustBeClean(t, st, dir)
	if r.Files != (layouts.Files{Exact: 8, Whole: 4}) || r.Sessions != 6 {
		t.Errorf("the report is %+v", r)
	}
	mustEqual(t, files, exported(t, st))
	if again := mustBeClean(t, st, dir); again.Events != 0 {
		t.Errorf("the report of a second import is %+v", again)
	}
	for _, path := range []string{dir, filepath.Dir(dir), filepath.Join(dir, "sessions"), filepath.Join(dir, "sessions", "ses_1")} {
		if r := mustBeClean(t, st, path); r.Events != 0 || r.Root != "proj" {
			t.Errorf("%s: got %+v", path, r)
		}
	}
}

func TestRecorded(t *testing.T) {
	dir := testkit.Data(t, "errata")
	st := openStore(t)
	r := mustBeClean(t, st, dir)
	if r.Files != (layouts.Files{Exact: 1, Whole: 1}) || r.Events != 13 {
		t.Errorf("the report is %+v", r)
	}
	mustEqual(t, readTree(t, dir), exported(t, st))
	if again := mustBeClean(t, st, dir); again.Events != 0 {
		t.Errorf("the report of a second import is %+v", again)
	}
}

// generate returns a session with everything that its writer can write.
func generate(id string, r *rand.Rand) *session {
	models := []string{"claude-sonnet-4-6", "gpt-4o", "gemini <x>", "ärger"}[:1+r.IntN(4)]
	s := newSession(id, models...)
	for range r.IntN(9) {
		switch {
		case len(s.content.Runs) > 0 && r.IntN(5) == 0 && s.meta.Runs[len(s.meta.Runs)-1].Type == "":
			s.rewind()
		default:
			answers := make([]string, len(models))
			for i := range answers {
				if r.IntN(4) > 0 {
					answers[i] = randomText(r)
				}
			}
			s.ask(randomText(r), answers...)
		}
		if r.IntN(3) == 0 {
			s.last(func(sum *summary) {
				sum.Note, sum.Selected, sum.AppliedFiles = randomText(r), models[0], []string{"a/" + randomText(r)}
			})
		}
	}
	return s
}

func randomText(r *rand.Rand) string {
	parts := []string{"why", "<b>", "&", "\u2028", "\n", "é", "\U0001f600", "\"", "\\", "\t", "go test ./...", strings.Repeat("long ", 30), "\x00", "你好"}
	var b strings.Builder
	for range 1 + r.IntN(5) {
		b.WriteString(parts[r.IntN(len(parts))])
	}
	return b.String()
}

// Everything that the original can write is exported byte for byte, all of it from the state.
func TestGenerated(t *testing.T) {
	testkit.NotUnderRace(t)
	files := make(map[string]string)
	r := rand.New(rand.NewPCG(1, 2))
	exact := 0
	n := testkit.Times(500)
	for i := range n {
		for name, data := range generate(fmt.Sprintf("ses_%04d", i), r).files() {
			files[name] = data
			exact++
		}
	}
	st, dir := openStore(t), folder(t, files)
	report := mustBeClean(t, st, dir)
	if report.Files != (layouts.Files{Exact: exact}) || report.Added != n {
		t.Errorf("the files are %+v, %d of %d added, want %d exact", report.Files, report.Added, n, exact)
	}
	mustEqual(t, files, exported(t, st))
	if again := mustBeClean(t, st, dir); again.Events != 0 || again.Unchanged != n {
		t.Errorf("the report of a second import is %+v", again)
	}
	if dry, err := (erratadir.Layout{}).Import(t.Context(), openStore(t), dir, layouts.ImportOptions{DryRun: true}); err != nil || dry.Events != report.Events {
		t.Errorf("a dry run reports %d events, error %v, want %d", dry.Events, err, report.Events)
	}
}
