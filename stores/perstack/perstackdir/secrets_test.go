package perstackdir_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/internal/sealed"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/internal/testkit/layouttest"
	"github.com/tallylog/tally/stores/perstack/perstackdir"
)

const aSetting = "jobs/a/runs/run-a/run-setting.json"

// mustHideCanaries checks that no record of a store has a canary.
func mustHideCanaries(t *testing.T, st store) {
	t.Helper()
	for rec, err := range st.Read(t.Context(), events.Range{}) {
		if err != nil {
			t.Fatal(err)
		}
		if text := string(rec.Data) + fmt.Sprint(rec.Extensions); hasCanary(text) {
			t.Errorf("record %s %s contains a secret: %.600s", rec.Subject, rec.Type, text)
		}
	}
}

// hasCanary reports whether a text has a canary, in any encoding.
func hasCanary(text string) bool { return testkit.HasCanary([]byte(text)) }

// P-21, P-35: no record has a secret in clear. An export has the secrets with the key. Without it, it has placeholders,
// and the file has a problem.
func TestSecrets(t *testing.T) {
	st, files := openStore(t), small("a").files
	mustBeClean(t, st, folder(t, files))
	mustHideCanaries(t, st)
	layouttest.MustEqual(t, files, exported(t, st))

	other := ringOf(t, "two")
	for name, l := range map[string]perstackdir.Layout{
		"no keys":     bare,
		"another key": {Keys: func() (*sealed.Ring, error) { return other, nil }},
		"a bad file":  {Keys: func() (*sealed.Ring, error) { return nil, errors.New("others may read it") }},
	} {
		have, r := layouttest.Exported(t, st, l)
		if len(r.Problems) != 1 || r.Problems[0].File != aSetting || hasCanary(fmt.Sprint(r)) {
			t.Errorf("%s: got %v", name, r.Problems)
		}
		for path, data := range have {
			if hasCanary(data) {
				t.Errorf("%s: the file %s contains a secret", name, path)
			}
		}
		if want := strings.Count(files[aSetting], "canary"); strings.Count(have[aSetting], `"tally:secret:`) != want || len(have) != len(files) {
			t.Errorf("%s: want %d placeholders: %s", name, want, have[aSetting])
		}
	}
}

// A setting that seems to have placeholders is exported unchanged.
func TestOwnPlaceholders(t *testing.T) {
	r := newRuntime("a").play(1, 10)
	r.storeSetting([2]any{"note", "tally:secret:1"}, [2]any{"verbose", true})
	layouttest.MustBeClean(t, mustComeBack(t, r.files))
}

// Without a key, a setting with secrets is reported and not imported, and everything else is. A later import with the
// key imports it.
func TestImportWithoutKey(t *testing.T) {
	st, files := openStore(t), small("a").files
	dir := folder(t, files)
	for range 2 {
		mustSay(t, mustImportBy(t, bare, st, dir, layouts.ImportOptions{}), aSetting, "3 secrets; not imported: there is no key")
		mustHideCanaries(t, st)
		layouttest.MustEqual(t, layouttest.Change(files, aSetting, "-"), exported(t, st))
	}
	if r := mustBeClean(t, st, dir); r.Changed != 1 {
		t.Errorf("the report is %+v", r)
	}
	layouttest.MustEqual(t, files, exported(t, st))
	mustSay(t, mustImportBy(t, bare, st, dir, layouts.ImportOptions{}), aSetting, "not imported")
	layouttest.MustEqual(t, files, exported(t, st)) // the present files stay
}

// --no-secrets drops the values, counts and lists them. A later import with the key stores them.
func TestNoSecrets(t *testing.T) {
	st, files := openStore(t), small("a").files
	dir := folder(t, files)
	for i := range 2 {
		r := mustImportBy(t, keyed(t), st, dir, layouts.ImportOptions{NoSecrets: true})
		mustSay(t, r, aSetting, "3 secrets left out")
		for _, path := range []string{"/providerConfig/apiKey", "/perstackApiKey", "/env/TOKEN"} {
			if !strings.Contains(r.Problems[0].Reason, path) {
				t.Errorf("the problems do not name %s: %v", path, r.Problems)
			}
		}
		if i == 1 && r.Events != 0 {
			t.Errorf("the report of a second import is %+v", r)
		}
	}
	for info, err := range st.Subjects(t.Context(), sealed.Kind) {
		t.Errorf("the subject %v exists, error %v", info.Subject, err)
	}
	have, r := layouttest.Exported(t, st, keyed(t))
	if mustSay(t, r, aSetting, "placeholders"); hasCanary(have[aSetting]) {
		t.Error(have[aSetting])
	}
	mustBeClean(t, st, dir)
	layouttest.MustEqual(t, files, exported(t, st))
}

// A file that is not a valid setting may hold secrets: it is kept sealed, or not at all. The same applies to a setting
// with an unexpected value that looks like a key, and to a changed one.
func TestPrivateFiles(t *testing.T) {
	base := small("a").files
	suspect := newRuntime("a")
	suspect.storeSetting([2]any{"remark", canary("suspect") + "0aB1cD2eF3"})
	for name, files := range map[string]map[string]string{
		"half a setting":         layouttest.Change(base, aSetting, base[aSetting][:len(base[aSetting])-20]),
		"an editor's copy":       layouttest.Change(base, aSetting+"~", base[aSetting]),
		"bytes":                  layouttest.Change(base, aSetting, "\x00"+base[aSetting]),
		"a setting of elsewhere": layouttest.Change(base, "jobs/a/runs/other/run-setting.json", base[aSetting]),
		"a setting of nowhere":   layouttest.Change(base, "jobs/a/run-setting.json", base[aSetting]),
		"a suspect":              layouttest.Change(base, aSetting, suspect.files[aSetting]),
	} {
		t.Run(name, func(t *testing.T) {
			mustComeBack(t, files)
			st, dir := openStore(t), folder(t, files)
			mustImport(t, st, dir)
			mustHideCanaries(t, st)
			have, r := layouttest.Exported(t, st, bare)
			if len(r.Problems) == 0 {
				t.Error("an export without the key reports no problem")
			}
			for path, data := range have {
				if hasCanary(data) {
					t.Errorf("the file %s contains a secret", path)
				}
			}
			for _, o := range []layouts.ImportOptions{{}, {NoSecrets: true}} {
				st := openStore(t)
				r := mustImportBy(t, bare, st, dir, o)
				if len(r.Problems) == 0 || hasCanary(fmt.Sprint(r)) {
					t.Errorf("got the problems %v", r.Problems)
				}
				mustHideCanaries(t, st)
				if again := mustImportBy(t, bare, st, dir, o); again.Events != 0 {
					t.Errorf("the report of a second import is %+v", again)
				}
			}
		})
	}
}

// P-11: the original changes only the time of a setting's last use; the secrets stay sealed. A setting with another
// change is kept whole, sealed.
func TestSettingAgain(t *testing.T) {
	r := newRuntime("a").play(1, 10)
	r.storeSetting()
	st, dir := openStore(t), folder(t, r.files)
	mustBeClean(t, st, dir)
	for _, c := range []struct{ old, with string }{
		{`"updatedAt":1754000000035`, `"updatedAt":1754000900000`},
		{canary("env"), canary("rotated")},
		{`"model":"claude"`, `"model":"gpt"`},
		{`"model":"gpt"`, `"model":"claude"`},
	} {
		if !strings.Contains(r.files[aSetting], c.old) {
			t.Fatalf("%s is missing in %s", c.old, r.files[aSetting])
		}
		r.files[aSetting] = strings.Replace(r.files[aSetting], c.old, c.with, 1)
		layouttest.WriteTree(t, dir, 0o644, r.files)
		mustBeClean(t, st, dir)
		mustHideCanaries(t, st)
		layouttest.MustEqual(t, r.files, exported(t, st))
		if again := mustBeClean(t, st, dir); again.Events != 0 {
			t.Errorf("%s: the report of a second import is %+v", c.with, again)
		}
	}
	run := load(t, st, "a").Ledger.Run(events.RunRef{Kind: "expert", ID: "run-a"})
	if run.TouchedAt != "2025-07-31T22:28:20.000Z" || run.Models[0] != "claude" {
		t.Errorf("got %+v", run)
	}
}

// An invalid key file ends an import before the first write.
func TestBadKeys(t *testing.T) {
	name := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(name, []byte(strings.Repeat("0f", 32)), 0o644); err != nil {
		t.Fatal(err)
	}
	l := perstackdir.Layout{Keys: func() (*sealed.Ring, error) { return sealed.ReadFile(name) }}
	st := openStore(t)
	if _, err := l.Import(t.Context(), st, folder(t, small("a").files), layouts.ImportOptions{}); err == nil {
		t.Error("a key file that others may read was accepted")
	}
	if head, _ := st.Head(t.Context()); head != 0 {
		t.Errorf("the log has %d records, want none", head)
	}
}
