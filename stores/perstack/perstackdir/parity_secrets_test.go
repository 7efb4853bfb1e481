package perstackdir_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/internal/sealed"
	"github.com/tallylog/tally/internal/testkit/layouttest"
	"github.com/tallylog/tally/stores/perstack"
	"github.com/tallylog/tally/stores/perstack/perstackdir"
)

// manySecrets returns the files of a job whose setting has 40 canaries, at every kind of position.
func manySecrets(t *testing.T) map[string]string {
	t.Helper()
	n := 0
	next := func() string { n++; return canary(fmt.Sprint("n", n)) }
	few := func(names ...string) (o object) {
		for _, name := range names {
			o = append(o, [2]any{name, next()})
		}
		return o
	}
	skill := func(members ...[2]any) object { return append(object{{"type", "mcpStdioSkill"}}, members...) }
	skills := object{
		{"stdio", skill([2]any{"command", "npx --token " + next()}, [2]any{"args", []string{"--api-key", next(), "--token=" + next()}},
			[2]any{"env", few("A", "B", "C", "D", "E", "F")})},
		{"sse", skill([2]any{"endpoint", "https://me:" + next() + "@host/?token=" + next()}, [2]any{"headers", few("Authorization", "X-Api-Key", "Cookie")})},
		{"nested", skill([2]any{"deep", object{{"er", object{{"password", next()}, {"accessToken", next()}, {"clientSecret", next()}}}}})},
	}
	provider := object{{"providerName", "nobody-knows"}, {"apiKey", next()}, {"secretAccessKey", next()}, {"sessionToken", next()},
		{"baseUrl", "https://api.example.com/v1?key=" + next()}, {"headers", few("Authorization", "X-Other")}, {"odd", few("a", "b", "c")}}
	env := few("TOKEN", "HOME", "G", "H", "I", "J", "K", "L", "M", "N", "O")
	r := newRuntime("a")
	r.storeSetting([2]any{"perstackBaseSkillCommand", []string{"base", "--key", next()}}, [2]any{"proxyUrl", "http://user:" + next() + "@proxy:8080"})
	for old, with := range map[string]any{`"experts":{}`: object{{"e", object{{"key", "e"}, {"skills", skills}}}}, `"env":{"TOKEN":"` + canary("env") + `"}`: env,
		`"providerConfig":{"providerName":"anthropic","apiKey":"` + canary("provider") + `"}`: provider} {
		name, _, _ := strings.Cut(old, ":")
		if !strings.Contains(r.files[aSetting], old) {
			t.Fatalf("the setting lacks %s", old)
		}
		r.files[aSetting] = strings.Replace(r.files[aSetting], old, name+":"+js(with), 1)
	}
	if have := strings.Count(r.files[aSetting], "canary"); have < 40 {
		t.Fatalf("got %d canaries", have)
	}
	return r.play(1, 20).files
}

// paritySecrets exports, imports and reads with and without the key.
func paritySecrets(t *testing.T, st *tally.Store) {
	files := manySecrets(t)
	t.Run("P-21 P-35 of 40 secrets none is in a record, and the key brings them out", func(t *testing.T) {
		own := in(t, st, "p35")
		if r := mustBeClean(t, own, folder(t, files)); hasCanary(fmt.Sprint(r)) {
			t.Errorf("the report contains a secret: %v", r)
		}
		layouttest.MustEqual(t, files, exported(t, own))
		mustHideCanaries(t, under(own))
	})
	t.Run("P-21 P-35 without the key there are placeholders, and an error that tells nothing", func(t *testing.T) {
		own := in(t, st, "p35")
		have, r := layouttest.Exported(t, own, bare)
		if mustSay(t, r, aSetting, "placeholders"); hasCanary(fmt.Sprint(have, r)) {
			t.Errorf("an export without the key contains a secret: %v", r)
		}
		if !strings.Contains(have[aSetting], `"tally:secret:`) || len(have) != len(files) {
			t.Errorf("the setting without the key is %s", have[aSetting])
		}
		t.Setenv(sealed.Variable, "")
		h := perstack.JobOf(own, "a")
		if _, err := h.Setting(t.Context(), "run-a"); !errors.Is(err, perstack.ErrNoKey) || hasCanary(err.Error()) {
			t.Errorf("read without the key: %v", err)
		}
		if list, err := h.Settings(t.Context()); err != nil || len(list) != 1 || hasCanary(js(list)) {
			t.Errorf("the list is %+v, error %v", list, err)
		}
		err := perstack.StoreRunSetting(t.Context(), in(t, st, "p35-none"), parsed(t, files[aSetting]), nil, nil)
		if !errors.Is(err, perstack.ErrNoKey) || hasCanary(err.Error()) {
			t.Errorf("store a setting without a key: %v", err)
		}
		refused := mustImportBy(t, bare, in(t, st, "p35-none"), folder(t, files), layouts.ImportOptions{})
		if mustSay(t, refused, aSetting, "there is no key"); hasCanary(fmt.Sprint(refused)) {
			t.Errorf("the report contains a secret: %v", refused)
		}
		mustHideCanaries(t, under(own))
	})
}

// parityLeftOut reads a setting that was imported without secrets.
func parityLeftOut(t *testing.T, st *tally.Store) {
	t.Run("P-21 what was imported without secrets is never taken for a setting, and a later import with the key brings them", func(t *testing.T) {
		own, files := in(t, st, "p21-left"), small("a").files
		dir, h := folder(t, files), perstack.JobOf(own, "a")
		mustSay(t, mustImportBy(t, withKeys(t, olderKey), own, dir, layouts.ImportOptions{NoSecrets: true}), aSetting, "left out")
		for _, keys := range []string{os.Getenv(sealed.Variable), ""} { // a key does not help
			t.Setenv(sealed.Variable, keys)
			if s, err := h.Setting(t.Context(), "run-a"); !errors.Is(err, perstack.ErrNoSecrets) || errors.Is(err, tally.ErrNotFound) || !strings.Contains(err.Error(), "run-a") {
				t.Errorf("the setting is %+v, error %v", s, err)
			}
		}
		if list, err := h.Settings(t.Context()); err != nil || len(list) != 1 || !strings.HasPrefix(list[0].PerstackAPIKey, "tally:secret:") {
			t.Errorf("the list is %+v, error %v", list, err)
		}
		layouttest.MustBeClean(t, mustImportBy(t, withKeys(t, olderKey), own, dir, layouts.ImportOptions{}))
		t.Setenv(sealed.Variable, "")
		if _, err := h.Setting(t.Context(), "run-a"); !errors.Is(err, perstack.ErrNoKey) {
			t.Errorf("read without the key: %v", err)
		}
		withKeys(t, olderKey)
		mustOpen(t, own, "a")
		if list, err := h.Settings(t.Context()); err != nil || len(list) != 1 || list[0].PerstackAPIKey != canary("api") {
			t.Errorf("the list is %+v, error %v", list, err)
		}
		if err := own.Documents().Purge(t.Context(), sealed.Kind, secretOf(t, own, "run-a")); err != nil {
			t.Fatal(err)
		}
		if s, err := h.Setting(t.Context(), "run-a"); !errors.Is(err, perstack.ErrNoSecrets) {
			t.Errorf("after a purge the setting is %+v, error %v", s, err)
		}
	})
}

func parsed(t *testing.T, text string) perstack.RunSetting {
	t.Helper()
	s, err := perstack.ParseRunSetting(events.Raw(text))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// These are lines of key files: an older key, a newer one, and others with only their ids.
var (
	olderKey = "one:" + strings.Repeat("0123456789abcdef", 4) + "\n"
	newerKey = "two:" + strings.Repeat("fedcba9876543210", 4) + "\n"
	wrongKey = "one:" + strings.Repeat("00112233445566778899aabbccddeeff", 2) + "\n" + "two:" + strings.Repeat("ffeeddccbbaa99887766554433221100", 2) + "\n"
)

// withKeys makes this process, and the returned layout, use keys.
func withKeys(t *testing.T, lines string) perstackdir.Layout {
	t.Helper()
	name := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(name, []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv(sealed.Variable, name)
	return perstackdir.Layout{Keys: sealed.FromEnvironment}
}

// sealAgain seals the secrets of a setting with the newest key, as tally secrets rotate does.
func sealAgain(t *testing.T, st *tally.Store, id string) {
	t.Helper()
	ring, err := sealed.FromEnvironment()
	if err != nil {
		t.Fatal(err)
	}
	doc, err := st.Documents().Read(t.Context(), sealed.Kind, id)
	if err != nil {
		t.Fatal(err)
	}
	sub := events.Document(st.Namespace(), sealed.Kind, id)
	plain, err := ring.OpenDocument(sub, doc.Data)
	if err != nil {
		t.Fatal(err)
	}
	content, err := ring.SealDocument(sub, plain)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := st.Documents().Update(t.Context(), sealed.Kind, id, doc.Offset, tally.Write{Data: content, ContentType: doc.ContentType}); err != nil {
		t.Fatal(err)
	}
}

func parityKeys(t *testing.T, st *tally.Store) {
	own := in(t, st, "p36")
	files := layouttest.Change(small("a").files, "jobs/b/job.json", newRuntime("b").play(0, 0).files["jobs/b/job.json"])
	const bSetting = "jobs/b/runs/run-b/run-setting.json"
	b := newRuntime("b")
	b.storeSetting()
	files[bSetting] = b.files[bSetting]
	layouttest.MustBeClean(t, mustImportBy(t, withKeys(t, olderKey), own, folder(t, files), layouts.ImportOptions{}))
	live, stored := in(t, st, "p36-live"), settingOf("c", "run-c", began) // stored by a program: it names the sealed revision
	if err := perstack.StoreRunSetting(t.Context(), live, parsed(t, stored), nil, nil); err != nil {
		t.Fatal(err)
	}
	withKeys(t, olderKey+newerKey)
	sealAgain(t, own, secretOf(t, own, "run-a"))
	sealAgain(t, live, secretOf(t, live, "run-c"))

	t.Run("P-36 after a rotation what is sealed with either key opens", func(t *testing.T) {
		layouttest.MustEqual(t, files, exportedBy(t, own, withKeys(t, olderKey+newerKey)))
		for _, job := range []string{"a", "b"} {
			mustOpen(t, own, job)
		}
		mustOpen(t, live, "c")
	})
	t.Run("P-36 with a key lost the runs are named that do not open, and the others open", func(t *testing.T) {
		have, r := layouttest.Exported(t, own, withKeys(t, newerKey))
		if mustSay(t, r, bSetting, `"one"`); have[aSetting] != files[aSetting] || hasCanary(have[bSetting]) {
			t.Errorf("the settings are %s\n%s", have[aSetting], have[bSetting])
		}
		layouttest.MustEqual(t, map[string]string{"jobs/c/runs/run-c/run-setting.json": stored}, exportedBy(t, live, withKeys(t, newerKey)))
		mustOpen(t, own, "a")
		mustOpen(t, live, "c")
		var lost *sealed.UnknownKeyError
		if _, err := perstack.JobOf(own, "b").Setting(t.Context(), "run-b"); !errors.As(err, &lost) || lost.ID != "one" || !strings.Contains(err.Error(), "run-b") {
			t.Errorf("read with the key lost: %v", err)
		}
	})
	t.Run("P-36 a wrong key is an error, never garbage", func(t *testing.T) {
		have, r := layouttest.Exported(t, own, withKeys(t, wrongKey))
		if len(r.Problems) != 2 || hasCanary(fmt.Sprint(r)) {
			t.Errorf("the problems are %v", r.Problems)
		}
		for job, name := range map[string]string{"a": aSetting, "b": bSetting} {
			if strings.Count(have[name], `"tally:secret:`) != strings.Count(files[name], "canary") || hasCanary(have[name]) {
				t.Errorf("%s is %s", name, have[name])
			}
			if s, err := perstack.JobOf(own, job).Setting(t.Context(), "run-"+job); !errors.Is(err, sealed.ErrSealBroken) {
				t.Errorf("%s: got %+v, error %v", job, s, err)
			}
		}
	})
}

// exportedBy returns all files of an export without problems.
func exportedBy(t *testing.T, st *tally.Store, l perstackdir.Layout) map[string]string {
	t.Helper()
	files, r := layouttest.Exported(t, st, l)
	layouttest.MustBeClean(t, r)
	return files
}

// secretOf returns the document with the secrets of a run.
func secretOf(t *testing.T, st *tally.Store, run string) (id string) {
	t.Helper()
	for info, err := range st.Subjects(t.Context(), sealed.Kind) {
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(info.Subject.ID, run) {
			id = info.Subject.ID
		}
	}
	if id == "" {
		t.Fatalf("run %s has no sealed document", run)
	}
	return id
}

func mustOpen(t *testing.T, st *tally.Store, job string) {
	t.Helper()
	s, err := perstack.JobOf(st, job).Setting(t.Context(), "run-"+job)
	if err != nil || s.PerstackAPIKey != canary("api") {
		t.Errorf("%s: got %+v, error %v", job, s, err)
	}
}
