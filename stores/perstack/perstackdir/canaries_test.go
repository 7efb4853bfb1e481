package perstackdir_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/internal/sealed"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/internal/testkit/layouttest"
	"github.com/tallylog/tally/internal/testkit/storetest"
	"github.com/tallylog/tally/stores/perstack"
	"github.com/tallylog/tally/stores/perstack/perstackdir"
)

// No secret of a setting is in any file of the store, however the setting was stored. The same search finds a canary in
// a message. The command's output is tested with the command.
func TestCanariesInFiles(t *testing.T) {
	testkit.NotUnderRace(t) // single-threaded
	storetest.EachDir(t, func(t *testing.T, st *tally.Store, dir string) {
		files := manySecrets(t)
		l := withKeys(t, olderKey)
		t.Run("P-35 of 40 secrets that came in by every way none is in a file of the store", func(t *testing.T) {
			fillWithSecrets(t, st, l, files)
			mustHideCanaries(t, under(st))
			mustHideInFiles(t, st, dir)
		})
		t.Run("P-35 no error and no list tells one", func(t *testing.T) { mustNotTell(t, st, files) })
		t.Run("P-35 with the key an export is byte-identical", func(t *testing.T) {
			layouttest.MustEqual(t, files, exportedBy(t, in(t, st, "folder"), withKeys(t, olderKey+newerKey)))
		})
		t.Run("P-35 a secret in a message is found: the search sees what it looks at", func(t *testing.T) {
			own := in(t, st, "clear")
			r := newRuntime("clear").play(1, 10)
			r.messages = append(r.messages, r.message("userMessage", "use "+canary("clear")))
			r.store(r.checkpoint("proceeding"))
			layouttest.MustBeClean(t, mustImportBy(t, withKeys(t, olderKey), own, folder(t, r.files), layouts.ImportOptions{}))
			if !hasCanary(fmt.Sprint(exportedBy(t, own, withKeys(t, olderKey)))) || !tells(t, own) {
				t.Error("the canary of a message is in no record or no export")
			}
			mustBeInFiles(t, st, dir)
		})
	})
}

// fillWithSecrets stores settings by a program and by imports: whole, without secrets, cut off, changed, suspect, and
// in unknown files. Then it seals them again.
func fillWithSecrets(t *testing.T, st *tally.Store, l perstackdir.Layout, files map[string]string) {
	t.Helper()
	suspect := newRuntime("s")
	suspect.storeSetting([2]any{"remark", canary("suspect") + "0aB1cD2eF3"})
	layouttest.MustBeClean(t, mustImportBy(t, l, in(t, st, "folder"), folder(t, files), layouts.ImportOptions{}))
	for name, odd := range map[string]map[string]string{
		"half": layouttest.Change(files, aSetting, files[aSetting][:len(files[aSetting])-20]), "copy": layouttest.Change(files, aSetting+"~", files[aSetting]),
		"suspect": layouttest.Change(files, "jobs/s/runs/run-s/run-setting.json", suspect.files["jobs/s/runs/run-s/run-setting.json"]),
	} {
		mustImportBy(t, l, in(t, st, name), folder(t, odd), layouts.ImportOptions{})
		mustImportBy(t, l, in(t, st, name+"-without"), folder(t, odd), layouts.ImportOptions{NoSecrets: true})
		mustImportBy(t, bare, in(t, st, name+"-bare"), folder(t, odd), layouts.ImportOptions{})
	}
	changed := layouttest.Change(files, aSetting, strings.Replace(files[aSetting], canary("n3"), canary("other"), 1))
	if changed[aSetting] == files[aSetting] {
		t.Fatal("the replacement did not change the setting")
	}
	later := in(t, st, "later")
	for _, tree := range []map[string]string{files, changed, files} {
		layouttest.MustBeClean(t, mustImportBy(t, l, later, folder(t, tree), layouts.ImportOptions{Merge: true}))
	}
	live := in(t, st, "live")
	for range 2 {
		if err := perstack.StoreRunSetting(t.Context(), live, parsed(t, files[aSetting]), nil, nil); err != nil {
			t.Fatal(err)
		}
	}
	withKeys(t, olderKey+newerKey)
	sealAgain(t, live, secretOf(t, live, "run-a"))
	sealAgain(t, in(t, st, "folder"), secretOf(t, in(t, st, "folder"), "run-a"))
}

// mustNotTell makes every call fail that can fail because of a secret, and lists everything.
func mustNotTell(t *testing.T, st *tally.Store, files map[string]string) {
	t.Helper()
	ctx, half := t.Context(), events.Raw(files[aSetting][:len(files[aSetting])-20])
	misfit := func(old, with string) events.Raw {
		text := strings.Replace(files[aSetting], old, with, 1)
		if text == files[aSetting] {
			t.Fatalf("the setting lacks %s", old)
		}
		return events.Raw(text)
	}
	say := func(what string, err error, values ...any) {
		t.Helper()
		text := fmt.Sprintf("%v %+v %s", err, err, values)
		for e := err; e != nil; e = errors.Unwrap(e) {
			text += fmt.Sprintf("%#v", e)
		}
		if hasCanary(text) {
			t.Errorf("%s shows a secret: %.400s", what, text)
		}
	}
	for name, lines := range map[string]string{"no key": "", "the key": olderKey + newerKey, "a lost key": "three:" + olderKey[len("one:"):], "a wrong key": wrongKey, "half a key": olderKey[:40] + "\n"} {
		l := withKeys(t, lines)
		if lines == "" {
			t.Setenv(sealed.Variable, "")
		}
		for what, raw := range map[string]events.Raw{"half a setting": half, "a name twice": misfit(`{"model"`, `{"model":"`+canary("twice")+`","model"`),
			"a suspect": misfit(`"expertKey":"e"`, `"expertKey":"`+canary("suspect")+`"`), "a list for a text": misfit(`"proxyUrl":"`, `"proxyUrl":["`+canary("list")+`"],"x":"`),
			"a number for a map": misfit(`"env":{`, `"env":7,"x":{`), "a text for a time": misfit(`"startedAt":`, `"startedAt":"`+canary("time")+`","x":`),
			"another job": misfit(`"jobId":"a"`, `"jobId":"`+canary("job")+`"`)} {
			_, err := perstack.JobOf(in(t, st, "refused"), "a").SaveSettingRaw(ctx, raw)
			if err == nil {
				t.Errorf("%s, %s: the invalid setting was stored", name, what)
			}
			if what != "another job" { // its error names the id
				say(name+", "+what, err)
			}
		}
		for _, ns := range []string{"folder", "live", "half", "suspect", "copy", "later"} {
			own := in(t, st, ns)
			h := perstack.JobOf(own, "a")
			s, err := h.Setting(ctx, "run-a")
			if name == "the key" && (ns == "folder" || ns == "live") && (err != nil || !hasCanary(string(s.ProviderConfig))) {
				t.Errorf("%s: with the key the configuration is %s, error %v", ns, s.ProviderConfig, err)
			}
			if say(name+", setting of "+ns, err); err != nil {
				say(name+", setting of "+ns, err, s)
			}
			if name == "the key" {
				continue // which exports them on purpose
			}
			list, err := h.Settings(ctx)
			say(name+", settings of "+ns, err, list)
			tree, err := h.Tree(ctx)
			say(name+", tree of "+ns, err, tree)
			out, r := layouttest.Exported(t, own, l)
			say(name+", export of "+ns, nil, out, r)
			if len(r.Problems) == 0 {
				t.Errorf("%s: the export of %s reports no problem", name, ns)
			}
		}
	}
}

// tells reports whether a record of a namespace has a canary.
func tells(t *testing.T, st *tally.Store) bool {
	t.Helper()
	for rec, err := range st.Log.Read(t.Context(), events.Range{}) {
		if err != nil {
			t.Fatal(err)
		}
		if rec.Subject.Namespace == st.Namespace() && hasCanary(string(rec.Data)) {
			return true
		}
	}
	return false
}

// mustHideInFiles checks that no file of a store has a canary, and that there are files.
func mustHideInFiles(t *testing.T, st *tally.Store, dir string) {
	t.Helper()
	if dir == "" {
		return
	}
	views(t, st)
	found, read := testkit.CanaryFiles(t, dir)
	if len(found) > 0 || read < 10_000 {
		t.Errorf("of %d bytes of files, these have a secret: %v", read, found)
	}
}

// mustBeInFiles checks that the log's files have a canary, and so do those of the views, if there are any. A server
// that others run writes them at its own time.
func mustBeInFiles(t *testing.T, st *tally.Store, dir string) {
	t.Helper()
	if dir == "" {
		return
	}
	has := func(list []string, part string) bool {
		return slices.ContainsFunc(list, func(name string) bool { return strings.Contains(name, part) })
	}
	kept := views(t, st) != ""
	for found, _ := testkit.CanaryFiles(t, dir); ; found, _ = testkit.CanaryFiles(t, dir) {
		if has(found, ".blk") && (!kept || has(found, "search.db")) {
			return
		}
		select {
		case <-t.Context().Done():
			t.Fatalf("the canary is only in %v", found)
		case <-time.After(20 * time.Millisecond):
		}
	}
}
