package perstackdir_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/internal/testkit/layouttest"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/stores/perstack/perstackdir"
)

// mustComeBack imports a tree with problems, and checks that an export writes it unchanged. A second import adds
// nothing and reports the same.
func mustComeBack(t *testing.T, files map[string]string) layouts.Report {
	t.Helper()
	return mustComeBackOf(t, openStore(t), files)
}

// mustComeBackOf is mustComeBack with an empty store.
func mustComeBackOf(t *testing.T, st layouts.Target, files map[string]string) layouts.Report {
	t.Helper()
	dir := folder(t, files)
	r := mustImport(t, st, dir)
	have, x := layouttest.Exported(t, st, keyed(t))
	layouttest.MustBeClean(t, x)
	layouttest.MustEqual(t, files, have)
	if again := mustImport(t, st, dir); again.Events != 0 || len(again.Problems) != len(r.Problems) {
		t.Errorf("the report of a second import is %+v, want the problems %v", again, r.Problems)
	}
	return r
}

// mustSay checks that a file has one problem, and that there is no other.
func mustSay(t *testing.T, r layouts.Report, file, reason string) {
	t.Helper()
	if len(r.Problems) != 1 || r.Problems[0].File != file || !strings.Contains(r.Problems[0].Reason, reason) {
		t.Errorf("the problems are %v, want one of %s: %s", r.Problems, file, reason)
	}
}

// A file that the original could not read, or would expect under another name, is kept as it is and reported once.
// Nothing of it appears elsewhere.
func TestMalformed(t *testing.T) {
	base := small("a").files
	event, checkpoint := pathOf(base, "-callTools"), pathOf(base, "checkpoints/cp2")
	for name, c := range map[string]struct{ path, content, reason string }{
		"half an event":                 {event, base[event][:40], "kept as it is"},
		"an empty event":                {event, "", "end"},
		"half a checkpoint":             {checkpoint, base[checkpoint][:len(base[checkpoint])-1], ""},
		"a checkpoint of bytes":         {checkpoint, "\x00\xff\xfe", ""},
		"half a job":                    {"jobs/a/job.json", base["jobs/a/job.json"][:30], ""},
		"a job of another id":           {"jobs/a/job.json", strings.Replace(base["jobs/a/job.json"], `"id": "a"`, `"id": "b"`, 1), "in the folder of"},
		"a job without a status":        {"jobs/a/job.json", strings.Replace(base["jobs/a/job.json"], `"status": "completed"`, `"status": "done"`, 1), "status"},
		"an event of another step":      {event, strings.Replace(base[event], `"stepNumber":1`, `"stepNumber":2`, 1), "match the name"},
		"an event of another run":       {event, strings.Replace(base[event], `"runId":"run-a"`, `"runId":"x"`, 1), "match the name"},
		"an event of another job":       {event, strings.Replace(base[event], `"jobId":"a"`, `"jobId":"b"`, 1), "in the folder of"},
		"an event that is a list":       {event, "[" + base[event] + "]", ""},
		"an event with a negative step": {event, strings.Replace(base[event], `"stepNumber":1`, `"stepNumber":-1`, 1), "stepNumber"},
		"an event of NaN":               {"jobs/a/runs/run-a/event-NaN-1-x.json", `{"timestamp":NaN}`, ""},
		"an event of 10^20":             {"jobs/a/runs/run-a/event-100000000000000000000-1-x.json", `{"id":"e","expertKey":"e","type":"x","jobId":"a","runId":"run-a","stepNumber":1,"timestamp":100000000000000000000}`, "timestamp"},
		"a checkpoint of another id":    {"jobs/a/checkpoints/other.json", base[checkpoint], "match the name"},
		"a checkpoint nested too deep":  {checkpoint, strings.Repeat("[", 100000) + strings.Repeat("]", 100000), ""},
		"an event with a name twice":    {event, `{"id":"a","id":"b"}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			mustSay(t, mustComeBack(t, layouttest.Change(base, c.path, c.content)), c.path, c.reason)
		})
	}
}

// pathOf returns the first path that contains a part.
func pathOf(files map[string]string, part string) string {
	var found []string
	for name := range files {
		if strings.Contains(name, part) {
			found = append(found, name)
		}
	}
	return slices.Min(found)
}

// An unusual spelling is exported unchanged, and the value is in the log.
func TestSpelledOtherwise(t *testing.T) {
	testkit.NotUnderRace(t) // single-threaded
	base := small("a").files
	event, checkpoint, setting := pathOf(base, "-startGeneration"), pathOf(base, "checkpoints/cp2"), pathOf(base, "run-setting")
	for name, c := range map[string]struct{ path, content string }{
		"a job in one line":            {"jobs/a/job.json", compactOf(base["jobs/a/job.json"])},
		"a job with a newline":         {"jobs/a/job.json", base["jobs/a/job.json"] + "\n"},
		"a job by hand":                {"jobs/a/job.json", strings.ReplaceAll(base["jobs/a/job.json"], ": ", " : ")},
		"a job with a mark":            {"jobs/a/job.json", "\ufeff" + base["jobs/a/job.json"]},
		"an event with a newline":      {event, base[event] + "\r\n"},
		"an event with white space":    {event, strings.ReplaceAll(base[event], `"},{"`, "\"} , {\"")},
		"an event behind white space":  {event, "\n\n " + base[event]},
		"a checkpoint with a newline":  {checkpoint, base[checkpoint] + "\n"},
		"a checkpoint with two":        {checkpoint, base[checkpoint] + "\n\n"},
		"a setting with a newline":     {setting, base[setting] + "\n"},
		"a setting behind white space": {setting, " " + base[setting]},
	} {
		t.Run(name, func(t *testing.T) {
			files := layouttest.Change(base, c.path, c.content)
			if r := mustComeBack(t, files); len(r.Problems) > 0 {
				t.Error(r.Problems)
			}
			st := openStore(t)
			mustBeClean(t, st, folder(t, files))
			if s := load(t, st, "a"); len(s.Ledger.Checkpoints) != 4 || s.Ledger.Run(events.RunRef{Kind: "expert", ID: "run-a"}).Progress != 9 || s.Ledger.Text("status") != "completed" {
				t.Errorf("got %d checkpoints, the run %+v and the fields %s", len(s.Ledger.Checkpoints), s.Ledger.Runs[0], s.Ledger.Fields)
			}
		})
	}
}

func compactOf(pretty string) string {
	return strings.ReplaceAll(strings.ReplaceAll(strings.ReplaceAll(pretty, "\n", ""), "  ", ""), ": ", ":")
}

// P-30: other files are exported unchanged, in the folders of jobs and beside them.
func TestForeignFiles(t *testing.T) {
	base := small("a").files
	files := layouttest.Change(base, "jobs/a/.DS_Store", "\x00\x01", "jobs/a/notes/deep/er.md", "# Notes\n", "jobs/a/runs/run-a/stderr.log", "x\n",
		"jobs/a/runs/run-a/checkpoint-1754000000000-1-cp1.json", base[pathOf(base, "checkpoints/")], "jobs/a/checkpoints/README", "", "jobs/a/checkpoints/sub/x.json", "{}",
		"jobs/a/runs/empty.json", "{}", "jobs/readme.txt", "hello", "config.json", "{ }", "a/b/c", "deep")
	r := mustComeBack(t, files)
	layouttest.MustBeClean(t, r)
	if r.Files.Whole != 10 || len(r.Notes) != 7 {
		t.Errorf("the report is %+v", r)
	}
	if !slices.ContainsFunc(r.Notes, func(p layouts.Problem) bool {
		return strings.HasSuffix(p.File, "-cp1.json") && strings.Contains(p.Reason, "is a checkpoint where")
	}) {
		t.Errorf("the notes are %v", r.Notes)
	}
	st := openStore(t)
	mustBeClean(t, st, folder(t, files))
	if n := len(load(t, st, "a").Ledger.Checkpoints); n != 4 {
		t.Errorf("got %d checkpoints, want only those of checkpoints/", n)
	}
}

// Names that differ only in case, and names that are not UTF-8, are different files.
func TestNames(t *testing.T) {
	base := small("a").files
	c := base[pathOf(base, "checkpoints/cp2")]
	files := layouttest.Change(base, "jobs/a/checkpoints/CP2.json", strings.Replace(c, `"id":"cp2"`, `"id":"CP2"`, 1), "jobs/a/x\xff\xfe.txt", "odd", "jobs/a/checkpoints/\xff.json", "{}", "jobs/a/runs/r\xffn/event-1-1-x.json", "{}", "y\xff", "beside")
	r := mustComeBack(t, files)
	if len(r.Problems) != 2 {
		t.Errorf("got the problems %v", r.Problems)
	}
	for id, dir := range map[string]string{"con": "con", "a=2Fb": "a=2Fb", "a/b": "a=2Fb", "x.": "x.", "..": ".=2E", "Grüße": "Grüße"} {
		t.Run(id, func(t *testing.T) {
			files := make(map[string]string)
			for name, data := range small("a").files {
				files[strings.Replace(name, "jobs/a/", "jobs/"+dir+"/", 1)] = strings.NewReplacer(`"jobId":"a"`, `"jobId":`+js(id), `"id": "a"`, `"id": `+js(id)).Replace(data)
			}
			layouttest.MustBeClean(t, mustComeBack(t, files))
			st := openStore(t)
			root := folder(t, files)
			mustBeClean(t, st, root)
			load(t, st, id)
			sub, ok := bare.Subject(t.Context(), st, "proj", "jobs/"+dir+"/job.json")
			if dir == "a=2Fb" && id == dir { // its name is that of another id
				return
			}
			if !ok || sub.ID != "job/"+id {
				t.Errorf("the folder belongs to %v, %v", sub, ok)
			}
		})
	}
}

// If a directory is in place of a file, links lead elsewhere, or some files cannot be read, the others are imported.
func TestNotFiles(t *testing.T) {
	files := layouttest.Change(small("a").files, "jobs/a/job.json", "-", "jobs/a/job.json/inside", "x", "jobs/a/checkpoints/dir.json/y", "z")
	r := mustComeBack(t, files)
	layouttest.MustBeClean(t, r)

	dir, outside := folder(t, small("a").files), t.TempDir()
	layouttest.WriteTree(t, outside, 0o644, map[string]string{"secret": "SECRET", "job.json": "{}"})
	for from, to := range map[string]string{"jobs/a/link.json": "secret", "jobs/a/runs/run-a/event-1-1-x.json": "secret", "jobs/a/runs/elsewhere": ".", "jobs/other": ".", "up": "."} {
		if err := os.Symlink(filepath.Join(outside, to), filepath.Join(dir, filepath.FromSlash(from))); err != nil {
			t.Fatal(err)
		}
	}
	st := openStore(t)
	r = mustImport(t, st, dir)
	if len(r.Problems) != 5 || r.Sessions != 1 {
		t.Errorf("the report is %+v", r)
	}
	layouttest.MustEqual(t, small("a").files, exported(t, st))
}

// Unreadable files are reported, and their versions in the store stay.
func TestNoPermission(t *testing.T) {
	if testkit.AsNobody(t) {
		return
	}
	dir := folder(t, small("a").files)
	st := openStore(t)
	mustBeClean(t, st, dir)
	for _, name := range []string{"jobs/a/job.json", "jobs/a/runs"} {
		if err := os.Chmod(filepath.Join(dir, name), 0); err != nil {
			t.Fatal(err)
		}
		defer os.Chmod(filepath.Join(dir, name), 0o755)
	}
	r := mustImport(t, st, dir)
	if len(r.Problems) != 2 || r.Events != 0 {
		t.Errorf("the report is %+v", r)
	}
	layouttest.MustEqual(t, small("a").files, exported(t, st))
}

// P-10: an event that the original would overwrite is in the log, and exported with a number. Unique names stay
// unchanged.
func TestOneNameTwice(t *testing.T) {
	r := newRuntime("a").play(1, 10)
	first := pathOf(r.files, "-callTools")
	second := strings.Replace(first, ".json", ".2.json", 1)
	files := layouttest.Change(r.files, second, strings.Replace(r.files[first], `"ev`, `"again`, 1))
	layouttest.MustBeClean(t, mustComeBack(t, files))

	st, dir := openStore(t), folder(t, r.files)
	mustBeClean(t, st, dir)
	replaceTree(t, dir, layouttest.Change(r.files, first, files[second])) // as the original does
	if r := mustBeClean(t, st, dir); r.Changed != 1 {
		t.Errorf("the report is %+v", r)
	}
	layouttest.MustEqual(t, layouttest.Change(r.files, first, files[second]), exported(t, st))
	if p := load(t, st, "a").Ledger.Runs[0].Progress; p != 4 {
		t.Errorf("got %d events with the name, want both", p)
	}
}

// P-19: a folder of the runtime itself has neither job.json nor run-setting.json. An export does not create them, and
// job and run follow from the other files.
func TestWithoutJob(t *testing.T) {
	r := newRuntime("a").play(2, 50)
	files := layouttest.Change(r.files, "jobs/a/job.json", "-")
	layouttest.MustBeClean(t, mustComeBack(t, files))
	st := openStore(t)
	mustBeClean(t, st, folder(t, files))
	s := load(t, st, "a")
	if s.Ledger.Kind != events.KindJob || len(s.Ledger.Runs) != 1 || len(s.Ledger.Checkpoints) != 3 || s.Ledger.CreatedAt != "2025-07-31T22:13:20.007Z" {
		t.Errorf("got %+v", s.Ledger)
	}
	for rec, err := range st.Read(t.Context(), events.Range{Subject: s.Subject}) {
		if err != nil || rec.Type == events.TypeRunCreated {
			t.Errorf("got a record of type %v, error %v, that no file has", rec.Type, err)
		}
	}
}

// Files with restricted modes are exported with their modes.
func TestModes(t *testing.T) {
	dir := layouttest.WriteTree(t, filepath.Join(t.TempDir(), "proj", "perstack"), 0o600, small("a").files)
	event := filepath.Join(dir, pathOf(small("a").files, "-callTools"))
	if err := os.Chmod(event, 0o644); err != nil {
		t.Fatal(err)
	}
	st, out := openStore(t), t.TempDir()
	mustBeClean(t, st, dir)
	if n := len(load(t, st, "a").Ledger.Formats); n != 2 {
		t.Errorf("got %d formats, want one for the restricted file and one for the others", n)
	}
	layouttest.MustExport(t, st, keyed(t), out, layouts.ExportOptions{})
	for name := range small("a").files {
		want, _ := os.Stat(filepath.Join(dir, name))
		have, err := os.Stat(filepath.Join(out, name))
		if err != nil || have.Mode() != want.Mode() {
			t.Errorf("%s: the mode is %v, want %v; error %v", name, have.Mode(), want.Mode(), err)
		}
	}
	if again := mustBeClean(t, st, dir); again.Events != 0 {
		t.Errorf("the report is %+v", again)
	}
}

// P-41: two jobs with one id from two folders stay apart: the second one is refused, and imported with --merge.
func TestTwoRoots(t *testing.T) {
	st := openStore(t)
	mine := small("a").files
	mustBeClean(t, st, folder(t, mine))
	other := newRuntime("a")
	other.now += 1000
	other.play(2, 30)
	other.files["jobs/a/job.json"] = strings.Replace(other.files["jobs/a/job.json"], `"startedAt": 1754000000000`, `"startedAt": 1754000001000`, 1)
	theirs := folder(t, other.files)
	r := mustImport(t, st, theirs)
	if !slices.Equal(r.Refused, []string{"job/a"}) || r.Events != 0 || !strings.Contains(r.Problems[0].Reason, "--namespace") {
		t.Errorf("the report is %+v", r)
	}
	layouttest.MustEqual(t, mine, exported(t, st))
	apart := layouttest.Store{Log: st.Log, Name: "other"}
	mustBeClean(t, apart, theirs)
	layouttest.MustEqual(t, other.files, exported(t, apart))
	layouttest.MustEqual(t, mine, exported(t, st))
	if r := mustImportBy(t, keyed(t), st, theirs, layouts.ImportOptions{Merge: true}); len(r.Problems) > 0 || r.Changed != 1 {
		t.Errorf("the report is %+v", r)
	}
	layouttest.MustEqual(t, other.files, exported(t, st))
}

// If a program continued a job, an older folder does not reset it. New files of the folder are imported.
func TestChangedSince(t *testing.T) {
	r := small("a")
	st, dir := openStore(t), folder(t, r.files)
	mustBeClean(t, st, dir)
	live(t, st, "a", &events.CheckpointSaved{ID: "cp2", Kind: "step", Run: &events.RunRef{Kind: "expert", ID: "run-a"}, Step: 9, Raw: events.Raw(`{"id":"cp2"}`)})
	if again := mustImport(t, st, dir); len(again.Refused) != 1 || again.Events != 0 {
		t.Errorf("the report is %+v", again)
	}
	live(t, st, "a", &events.CheckpointSaved{ID: "cp2", Kind: "step", Run: &events.RunRef{Kind: "expert", ID: "run-a"}, Step: 0, Raw: events.Raw(r.files[pathOf(r.files, "checkpoints/cp2")])})
	r.emit("retry", [2]any{"reason", "x"})
	layouttest.WriteTree(t, dir, 0o644, r.files)
	if again := mustBeClean(t, st, dir); again.Changed != 1 || again.Events != 1 {
		t.Errorf("the report is %+v", again)
	}
	layouttest.MustEqual(t, r.files, exported(t, st))
}

// live appends an event that no import made.
func live(t testing.TB, st store, job string, p events.Payload) {
	t.Helper()
	e, err := events.New("urn:test:live", events.Session(st.Name, "job/"+job), p)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := st.Append(t.Context(), e.Subject, log.Any, e); err != nil {
		t.Fatal(err)
	}
}

// Sniff recognizes the folder perstack, its parent, the folder of jobs, and the folder of one job. With one job, files
// beside it are ignored.
func TestSniff(t *testing.T) {
	root := folder(t, layouttest.Change(newRuntime("a").play(1, 10).files, "jobs/b/job.json", newRuntime("b").play(0, 0).files["jobs/b/job.json"], "beside", "x"))
	for _, c := range []struct {
		path string
		jobs int
	}{{root, 2}, {filepath.Dir(root), 2}, {filepath.Join(root, "jobs"), 2}, {filepath.Join(root, "jobs", "a"), 1}, {filepath.Join(root, "jobs", "b"), 1}} {
		st := openStore(t)
		if r := mustBeClean(t, st, c.path); !bare.Sniff(c.path) || r.Sessions != c.jobs || r.Root != "proj" {
			t.Errorf("%s: got %+v", c.path, r)
		}
		if _, ok := exported(t, st)["beside"]; ok != (c.jobs == 2) {
			t.Errorf("%s: the file beside the jobs was exported: %v", c.path, ok)
		}
	}
	for _, path := range []string{filepath.Join(root, "jobs", "a", "runs"), filepath.Join(root, "beside"), t.TempDir(), folder(t, map[string]string{"jobs/x/job.json": "{}"})} {
		if bare.Sniff(path) {
			t.Errorf("Sniff accepted %s", path)
		}
	}
}

// A dry run reports the effects of an import, and has none.
func TestDryRun(t *testing.T) {
	st, dir := openStore(t), folder(t, layouttest.Change(small("a").files, "jobs/a/x", "y"))
	dry := mustImportBy(t, keyed(t), st, dir, layouts.ImportOptions{DryRun: true})
	if _, err := st.Loader().Session(t.Context(), events.Session(st.Name, "job/a"), 0); err == nil {
		t.Error("the dry run created the session")
	}
	real := mustImport(t, st, dir)
	if fmt.Sprint(dry.Events, dry.Files, dry.Problems) != fmt.Sprint(real.Events, real.Files, real.Problems) {
		t.Errorf("the dry run reports\n%+v\nwant\n%+v", dry, real)
	}
}

var _ layouts.Layout = perstackdir.Layout{}

// A document with a repeated member is kept whole and reported, and its value is not imported: the original's
// JSON.parse uses the last one, other parsers use the first one, and a secret in one of them would be overlooked. The
// rest of the job is imported.
func TestMemberTwice(t *testing.T) {
	base := small("a").files
	job, checkpoint, setting, event := "jobs/a/job.json", pathOf(base, "checkpoints/cp2"), pathOf(base, "run-setting"), pathOf(base, "-callTools")
	again := func(text, name, value string) string { // before the present one
		return strings.Replace(text, `"`+name+`":`, `"`+name+`":`+value+`,"`+name+`":`, 1)
	}
	spaced := strings.ReplaceAll
	for kind, c := range map[string]struct{ path, content, member string }{
		"the job's status":          {job, again(spaced(base[job], `": `, `":`), "status", `"running"`), "status"},
		"the same value":            {job, again(spaced(base[job], `": `, `":`), "totalSteps", "4"), "totalSteps"},
		"spelled otherwise":         {job, strings.Replace(base[job], "{", `{"\u0073tatus": "running",`, 1), "status"},
		"a member nobody knows":     {job, strings.Replace(base[job], "{", `{"x": 1, "x": 2,`, 1), "x"},
		"in the usage":              {job, again(spaced(base[job], `": `, `":`), "inputTokens", "1"), "usage.inputTokens"},
		"of a checkpoint":           {checkpoint, again(base[checkpoint], "stepNumber", "1"), "stepNumber"},
		"of an event":               {event, again(base[event], "stepNumber", "1"), "stepNumber"},
		"of a setting, a key first": {setting, strings.Replace(base[setting], "{", `{"model": "gpt", "model": "gpt",`, 1), "model"},
	} {
		t.Run("B-48 one member twice is named, kept whole, and nothing is taken from it/"+kind, func(t *testing.T) {
			files := layouttest.Change(base, c.path, c.content)
			r := mustComeBack(t, files)
			if len(r.Problems) != 1 || r.Problems[0].File != c.path || !strings.Contains(r.Problems[0].Reason, "duplicate name") || !strings.Contains(r.Problems[0].Reason, c.member[strings.LastIndexByte(c.member, '.')+1:]) {
				t.Errorf("the problems are %+v, want one of %s", r.Problems, c.member)
			}
			st := openStore(t)
			mustImport(t, st, folder(t, files))
			s := load(t, st, "a")
			if is := c.path != job; (s.Ledger.Text("status") == "completed") != is || (c.path == checkpoint) != (len(s.Ledger.Checkpoints) == 3) {
				t.Errorf("got the status %q and %d checkpoints", s.Ledger.Text("status"), len(s.Ledger.Checkpoints))
			}
		})
	}
}
