package perstackdir_test

import (
	"strings"
	"testing"

	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/internal/testkit/layouttest"
)

// mustSurvive imports any files: the import never panics, an export writes the same files, and a second import adds
// nothing.
func mustSurvive(t *testing.T, files map[string]string) {
	t.Helper()
	st, dir := openStore(t), folder(t, files)
	if !bare.Sniff(dir) {
		return
	}
	for _, p := range mustImport(t, st, dir).Problems {
		if strings.Contains(p.Reason, "does not come out") {
			t.Errorf("got %v", p)
		}
	}
	have, r := layouttest.Exported(t, st, keyed(t))
	layouttest.MustBeClean(t, r)
	layouttest.MustEqual(t, files, have)
	if again := mustImport(t, st, dir); again.Events != 0 {
		t.Errorf("the report of a second import is %+v", again)
	}
	layouttest.Exported(t, st, bare)
}

const anEvent = `{"type":"retry","id":"e","expertKey":"x","timestamp":1,"jobId":"a","runId":"r","stepNumber":2,"newMessages":[{"type":"userMessage","id":"m","contents":[{"type":"textPart","id":"p","text":"long enough to be taken out of it, since it is said again"}]}]}`

// FuzzEvent imports an event, twice under one name.
func FuzzEvent(f *testing.F) {
	for _, data := range []string{"", "{}", anEvent, anEvent + "\n", anEvent[:50], strings.Replace(anEvent, `"timestamp":1`, `"timestamp":1.0`, 1), strings.Replace(anEvent, `"id":"e"`, `"id":"\ud83d"`, 1), " " + anEvent, strings.Replace(anEvent, "retry", "completeRun", 1)} {
		f.Add([]byte(data), []byte(strings.Replace(data, `"id":"e"`, `"id":"f"`, 1)))
	}
	f.Fuzz(func(t *testing.T, one, two []byte) {
		mustSurvive(t, map[string]string{"jobs/a/runs/r/event-1-2-retry.json": string(one), "jobs/a/runs/r/event-1-2-retry.2.json": string(two), "jobs/a/runs/r/event-1-2-completeRun.json": string(one)})
	})
}

// FuzzEventName imports an event under any name.
func FuzzEventName(f *testing.F) {
	for _, name := range []string{"event-1-2-retry.json", "event-1-2-retry.2.json", "event-1-2-retry.02.json", "event-NaN-2-retry.json", "event--1-2-retry.json", "event-1-2-.json", "event-1-2-a-b.c.json", "event-1-2-retry", "event-01-2-retry.json", "event-1-2-=2F.json", "event-99999999999999999999-1-x.json"} {
		f.Add(name, "retry")
	}
	f.Add("event-1-2-a.2.json", "a.2")
	f.Add("event-1-2-con.json", "con")
	f.Fuzz(func(t *testing.T, name, typ string) {
		if !layouts.IsFileName(name) || len(name) > 200 || strings.ContainsAny(name, "/\x00") {
			return
		}
		mustSurvive(t, map[string]string{"jobs/a/runs/r/" + name: strings.Replace(anEvent, `"retry"`, js(typ), 1), "jobs/a/runs/r/event-1-2-retry.json": anEvent})
	})
}

// FuzzCheckpoint imports a checkpoint, and a similar one under another name.
func FuzzCheckpoint(f *testing.F) {
	r := newRuntime("a").play(1, 80)
	whole := r.files[pathOf(r.files, "checkpoints/cp8")]
	for _, data := range []string{"", "{}", whole, whole[:99], whole + "\r\n", strings.Replace(whole, `"stepNumber":1`, `"stepNumber":-1`, 1), strings.Replace(whole, `"messages":[`, `"messages":[ `, 1), `{"id":"cp8","jobId":"a"}`} {
		f.Add([]byte(data))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		mustSurvive(t, map[string]string{"jobs/a/checkpoints/cp8.json": string(data), "jobs/a/checkpoints/other.json": string(data), "jobs/a/checkpoints/cp2.json": whole})
	})
}

// FuzzSetting imports a setting, and an editor's damaged copy of it.
func FuzzSetting(f *testing.F) {
	r := newRuntime("a")
	r.storeSetting([2]any{"proxyUrl", "http://user:" + canary("proxy") + "@host"})
	whole := r.files[aSetting]
	for _, data := range []string{"", "{}", whole, whole[:150], whole + "\n", strings.Replace(whole, `"env":{`, `"env":{"a":1,`, 1), strings.Replace(whole, canary("env"), "tally:secret:9", 1), `{"providerConfig":{"apiKey":"` + canary("half")} {
		f.Add([]byte(data))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		mustSurvive(t, map[string]string{aSetting: string(data), aSetting + ".bak": string(data), "jobs/a/runs/b/run-setting.json": string(data)})
	})
}

// FuzzFolder imports any name and content of a file of a job, and any name of its folder.
func FuzzFolder(f *testing.F) {
	job := newRuntime("a").play(0, 0).files["jobs/a/job.json"]
	for _, dir := range []string{"a", "A", "con", "a=2Fb", "x.", "\xff", "=41", "job", strings.Repeat("x", 220)} {
		f.Add(dir, "job.json", []byte(job))
		f.Add(dir, "checkpoints/x.json", []byte(strings.Replace(job, `"a"`, js(dir), 1)))
	}
	f.Fuzz(func(t *testing.T, dir, name string, data []byte) {
		if !layouts.IsFileName(dir) || len(dir) > 240 || strings.ContainsRune(dir+name, 0) {
			return
		}
		for part := range strings.SplitSeq(name, "/") {
			if !layouts.IsFileName(part) || len(part) > 240 || len(name) > 1000 || part == "checkpoints" && name == part || part == "runs" && name == part || strings.HasPrefix(name, "checkpoints/cp.json/") {
				return
			}
		}
		mustSurvive(t, map[string]string{"jobs/" + dir + "/" + name: string(data), "jobs/" + dir + "/checkpoints/cp.json": `{"id":"cp"}`})
	})
}
