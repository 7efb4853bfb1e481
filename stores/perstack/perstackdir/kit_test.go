package perstackdir_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/internal/sealed"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/internal/testkit/layouttest"
	"github.com/tallylog/tally/internal/testkit/storetest"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/perstack/perstackdir"
)

func TestMain(m *testing.M) {
	testkit.CollectLess()
	done := storetest.Alone()
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) { done(); os.Exit(code) }))
}

type store = layouttest.Store

func openStore(t testing.TB) store { return layouttest.OpenStore(t) }

func ringOf(t testing.TB, id string) *sealed.Ring {
	t.Helper()
	ring, err := sealed.Parse([]byte(id + ":" + strings.Repeat("0123456789abcdef", 4) + "\n"))
	if err != nil {
		t.Fatal(err)
	}
	return ring
}

// keyed is the layout with a key, bare the layout without a key.
func keyed(t testing.TB) perstackdir.Layout {
	ring := ringOf(t, "one")
	return perstackdir.Layout{Keys: func() (*sealed.Ring, error) { return ring, nil }}
}

var bare perstackdir.Layout

func mustImportBy(t testing.TB, l perstackdir.Layout, st layouts.Target, dir string, o layouts.ImportOptions) layouts.Report {
	t.Helper()
	r, err := l.Import(t.Context(), st, dir, o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func mustImport(t testing.TB, st layouts.Target, dir string) layouts.Report {
	t.Helper()
	return mustImportBy(t, keyed(t), st, dir, layouts.ImportOptions{})
}

// mustBeClean imports a folder without problems.
func mustBeClean(t testing.TB, st layouts.Target, dir string) layouts.Report {
	t.Helper()
	r := mustImport(t, st, dir)
	layouttest.MustBeClean(t, r)
	return r
}

// exported returns all files of an export without problems.
func exported(t testing.TB, st layouts.Source) map[string]string {
	t.Helper()
	files, r := layouttest.Exported(t, st, keyed(t))
	layouttest.MustBeClean(t, r)
	return files
}

// folder writes a tree to the folder perstack of a project proj.
func folder(t testing.TB, files map[string]string) string {
	t.Helper()
	return layouttest.WriteTree(t, filepath.Join(t.TempDir(), "proj", "perstack"), 0o644, files)
}

// replaceTree replaces the contents of a folder.
func replaceTree(t testing.TB, dir string, files map[string]string) {
	t.Helper()
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	layouttest.WriteTree(t, dir, 0o644, files)
}

func load(t testing.TB, st store, job string) *projector.Session {
	t.Helper()
	s, err := st.Loader().Session(t.Context(), events.Session(st.Name, "job/"+job), 0)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// object is an object as JSON.stringify writes it: in the given order, without nil values.
type object [][2]any

func (o object) MarshalJSON() ([]byte, error) {
	var parts []string
	for _, m := range o {
		if m[1] != nil {
			parts = append(parts, js(m[0])+":"+js(m[1]))
		}
	}
	return []byte("{" + strings.Join(parts, ",") + "}"), nil
}

// js is JSON.stringify.
func js(v any) string {
	if raw, ok := v.(json.RawMessage); ok {
		return string(raw)
	}
	if o, ok := v.(object); ok {
		data, _ := o.MarshalJSON()
		return string(data)
	}
	if list, ok := v.([]object); ok {
		parts := make([]string, len(list))
		for i, o := range list {
			parts[i] = js(o)
		}
		return "[" + strings.Join(parts, ",") + "]"
	}
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic(err)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// pretty is JSON.stringify with two spaces.
func pretty(o object) string { return layouttest.Indent(js(o)) }

// original writes the folder of a job as the original's runtime does, with its repetition of all messages.
type original struct {
	files    map[string]string
	job, run string
	now      int64
	step     int
	tokens   int
	messages []object
	count    int
	last     object // checkpoint
}

const began = 1754000000000

func newRuntime(job string) *original {
	return &original{files: make(map[string]string), job: job, run: "run-" + job, now: began}
}

func (r *original) dir() string { return "jobs/" + r.job + "/" }

func usage(n int) object {
	return object{{"inputTokens", 10 * n}, {"outputTokens", n}, {"reasoningTokens", 0}, {"totalTokens", 11 * n}, {"cachedInputTokens", 0}}
}

func (r *original) message(kind, text string) object {
	r.count++
	id := fmt.Sprintf("%s-m%d", r.job, r.count)
	part := object{{"type", "textPart"}, {"id", id + "p"}, {"text", text}}
	if kind == "toolMessage" {
		part = object{{"type", "toolResultPart"}, {"id", id + "r"}, {"toolCallId", id + "c"}, {"toolName", "t"}, {"contents", []object{part}}}
	}
	return object{{"type", kind}, {"id", id}, {"contents", []object{part}}}
}

func (r *original) checkpoint(status string) object {
	r.count++
	return object{{"id", fmt.Sprintf("cp%d", r.count)}, {"jobId", r.job}, {"runId", r.run}, {"status", status}, {"stepNumber", r.step}, {"messages", r.messages},
		{"expert", object{{"key", "e"}, {"name", "e"}, {"version", "1.0.0"}}}, {"usage", usage(r.tokens)}, {"contextWindowUsage", json.RawMessage("0.125")}}
}

func (r *original) store(c object) {
	r.last = c
	r.files[r.dir()+"checkpoints/"+c[0][1].(string)+".json"] = js(c)
}

// emit stores an event.
func (r *original) emit(typ string, members ...[2]any) {
	r.now += 7
	r.count++
	e := append(object{{"type", typ}, {"id", fmt.Sprintf("ev%d", r.count)}, {"expertKey", "e"}, {"timestamp", r.now}, {"jobId", r.job}, {"runId", r.run}, {"stepNumber", r.step}}, members...)
	r.files[fmt.Sprintf("%sruns/%s/event-%d-%d-%s.json", r.dir(), r.run, r.now, r.step, typ)] = js(e)
}

func (r *original) storeJob(status string) {
	j := object{{"id", r.job}, {"status", status}, {"coordinatorExpertKey", "e"}, {"totalSteps", r.step}, {"maxSteps", 100}, {"usage", usage(r.tokens)}, {"startedAt", began}}
	if status != "running" {
		j = append(j, [2]any{"finishedAt", r.now})
	}
	r.files[r.dir()+"job.json"] = pretty(j)
}

func (r *original) storeSetting(members ...[2]any) {
	s := append(object{{"model", "claude"}, {"providerConfig", object{{"providerName", "anthropic"}, {"apiKey", canary("provider")}}}, {"jobId", r.job}, {"runId", r.run}, {"expertKey", "e"},
		{"input", object{{"text", "do it"}}}, {"experts", object{}}, {"reasoningBudget", "low"}, {"maxSteps", 100}, {"maxRetries", 5}, {"timeout", 300000}, {"startedAt", began}, {"updatedAt", r.now},
		{"perstackApiBaseUrl", "https://api.example.com"}, {"perstackApiKey", canary("api")}, {"env", object{{"TOKEN", canary("env")}}}}, members...)
	r.files[r.dir()+"runs/"+r.run+"/run-setting.json"] = js(s)
}

// canary returns a value that may only be in the folder.
func canary(name string) string { return testkit.Canary(name) }

// play runs a job for some steps, with a text of some size in each.
func (r *original) play(steps, size int) *original {
	r.storeJob("running")
	first := r.message("userMessage", "what <is> that & \u2028 this?")
	r.messages = append(r.messages, first)
	r.store(r.checkpoint("init"))
	r.emit("startRun", [2]any{"initialCheckpoint", r.last}, [2]any{"inputMessages", []object{first}})
	r.steps(steps, size)
	r.emit("completeRun", [2]any{"checkpoint", r.last}, [2]any{"step", object{{"stepNumber", r.step}, {"newMessages", []object{}}, {"usage", usage(1)}, {"startedAt", r.now}}}, [2]any{"text", "done"}, [2]any{"usage", usage(1)})
	r.storeJob("completed")
	return r
}

func (r *original) steps(n, size int) {
	for range n {
		r.step++
		r.emit("startGeneration", [2]any{"messages", r.messages})
		more := []object{r.message("expertMessage", strings.Repeat("x", size)), r.message("toolMessage", strings.Repeat("y", size/4))}
		r.emit("callTools", [2]any{"newMessage", more[0]}, [2]any{"toolCalls", []object{}}, [2]any{"usage", usage(1)})
		before := r.last
		r.messages, r.tokens = append(r.messages[:len(r.messages):len(r.messages)], more...), r.tokens+1
		next := r.checkpoint("proceeding")
		r.emit("continueToNextStep", [2]any{"checkpoint", before}, [2]any{"step", object{{"stepNumber", r.step}, {"newMessages", more}, {"usage", usage(1)}, {"startedAt", r.now}}}, [2]any{"nextCheckpoint", next})
		r.store(next)
	}
}

// small returns a job of a few steps with all kinds of files.
func small(job string) *original {
	r := newRuntime(job)
	r.storeSetting()
	return r.play(3, 200)
}
