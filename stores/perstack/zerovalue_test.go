package perstack_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/internal/testkit/storetest"
	"github.com/tallylog/tally/stores/perstack"
)

// An optional is an optional member of a document, with its values: the zero value first.
type optional struct {
	name   string
	values []string
}

const (
	zeroUsage = `"usage":{"inputTokens":0,"outputTokens":0,"reasoningTokens":0,"totalTokens":0,"cachedInputTokens":0}`
	zeroWho   = `{"key":"","name":"","version":""}`
)

// documents are the typed values, with the required text before and after, and the optional members between.
var documents = []struct {
	name          string
	front, behind string
	may           []optional
	spell         func(events.Raw) (events.Raw, error) // parses it and encodes it
}{
	{"job", `"id":"j","status":"running","coordinatorExpertKey":"","totalSteps":0`, zeroUsage + `,"startedAt":0`,
		[]optional{{"maxSteps", []string{"0", "7"}}, {"finishedAt", []string{"0", "9"}}, {"later", []string{"0", `""`, "null"}}},
		func(raw events.Raw) (events.Raw, error) { return spelled(perstack.ParseJob(raw)) }},
	{"checkpoint", `"id":"c","jobId":"j","runId":"r","status":"init","stepNumber":0,"messages":[],"expert":` + zeroWho, zeroUsage,
		[]optional{{"delegateTo", []string{"[]", `[{"expert":` + zeroWho + `,"toolCallId":"","toolName":"","query":"","odd":null}]`}},
			{"delegatedBy", []string{`{"expert":` + zeroWho + `,"toolCallId":"","toolName":"","checkpointId":"","runId":""}`}},
			{"contextWindow", []string{"0", "5"}}, {"contextWindowUsage", []string{"0", "0.0", "0.5"}}, {"pendingToolCalls", []string{"[]"}}, {"partialToolResults", []string{"[]"}},
			{"metadata", []string{"{}", `{"n":0}`}},
			{"error", []string{`{"name":"","message":"","statusCode":0,"isRetryable":false}`, `{"name":"","message":"","isRetryable":false}`, `{"name":"E","message":"m","statusCode":500,"isRetryable":true,"odd":0}`}},
			{"retryCount", []string{"0", "2"}}},
		func(raw events.Raw) (events.Raw, error) { return spelled(perstack.ParseCheckpoint(raw)) }},
	{"event", `"type":"t","id":"e","expertKey":"","timestamp":0,"jobId":"j","runId":"r","stepNumber":0`, "",
		[]optional{{"usage", []string{"null", "{}"}}, {"newMessages", []string{"[]"}}, {"text", []string{`""`}}, {"n", []string{"0", "false"}}},
		func(raw events.Raw) (events.Raw, error) { return spelled(perstack.ParseEvent(raw)) }},
	{"setting", `"model":"","providerConfig":{},"jobId":"j","runId":"r","expertKey":"","input":{},"experts":{}`, `"startedAt":0,"updatedAt":0`,
		[]optional{{"reasoningBudget", []string{"null", "0", `""`, `"low"`}}, {"maxSteps", []string{"0", "3"}}, {"maxRetries", []string{"0", "3"}}, {"timeout", []string{"0", "3"}},
			{"perstackApiBaseUrl", []string{`""`, `"u"`}}, {"perstackApiKey", []string{`""`}}, {"perstackBaseSkillCommand", []string{"[]", `[""]`}}, {"env", []string{"{}", `{"A":""}`}},
			{"proxyUrl", []string{`""`}}, {"verbose", []string{"false", "true"}}},
		func(raw events.Raw) (events.Raw, error) { return spelled(perstack.ParseRunSetting(raw)) }},
}

func spelled[T interface{ Raw() (events.Raw, error) }](v T, err error) (events.Raw, error) {
	if err != nil {
		return nil, err
	}
	return v.Raw()
}

// drawn returns a document with some of its optional members, in any order.
func drawn(random *rand.Rand, front, behind string, may []optional) string {
	parts := []string{front}
	if behind != "" {
		parts = append(parts, behind)
	}
	for _, m := range may {
		if n := random.IntN(len(m.values) + 1); n > 0 {
			parts = append(parts, fmt.Sprintf("%q:%s", m.name, m.values[n-1]))
		}
	}
	random.Shuffle(len(parts), func(i, j int) { parts[i], parts[j] = parts[j], parts[i] })
	return "{" + strings.Join(parts, ",") + "}"
}

// membersOf returns the members of an object and of objects in it, sorted.
func membersOf(t *testing.T, raw []byte) string {
	t.Helper()
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		t.Fatalf("%s: %v", raw, err)
	}
	return string(need(json.Marshal(v)))
}

func TestMembersOfZero(t *testing.T) {
	t.Run("B-45 a typed value has every member that was there, and no other", func(t *testing.T) {
		random := rand.New(rand.NewPCG(45, 1))
		for range testkit.Times(300) {
			for _, d := range documents {
				raw := drawn(random, d.front, d.behind, d.may)
				again, err := d.spell(events.Raw(raw))
				if err != nil {
					t.Fatalf("%s: %s: %v", d.name, raw, err)
				}
				if have, want := membersOf(t, again), membersOf(t, []byte(raw)); have != want {
					t.Fatalf("%s\n%s became\n%s", d.name, want, have)
				}
			}
		}
	})
	t.Run("B-45 what is loaded and stored changes no byte", func(t *testing.T) {
		ctx, random, st := t.Context(), rand.New(rand.NewPCG(45, 2)), storetest.Open(t, "memory")
		for n := range testkit.Times(20) {
			h := perstack.JobOf(st, fmt.Sprint("j", n))
			rename := func(s string) events.Raw {
				return events.Raw(strings.NewReplacer(`"id":"j"`, fmt.Sprintf(`"id":"j%d"`, n), `"jobId":"j"`, fmt.Sprintf(`"jobId":"j%d"`, n)).Replace(s))
			}
			job := rename(drawn(random, documents[0].front, documents[0].behind, documents[0].may))
			point := rename(drawn(random, documents[1].front, documents[1].behind, documents[1].may))
			need(h.SaveRaw(ctx, job))
			need(h.SaveCheckpointRaw(ctx, point))
			had := records(t, st)
			must(t, perstack.StoreJob(ctx, st, need(perstack.RetrieveJob(ctx, st, h.ID()))))
			must(t, perstack.DefaultStoreCheckpoint(ctx, st, need(perstack.DefaultRetrieveCheckpoint(ctx, st, h.ID(), "c"))))
			if a, b := need(h.JobBytes(ctx)), need(h.CheckpointBytes(ctx, "c")); !slices.Equal(a, job) || !slices.Equal(b, point) || records(t, st) != had {
				t.Fatalf("a save added %d records:\n%s\n%s\nbecame\n%s\n%s", records(t, st)-had, job, point, a, b)
			}
		}
	})
	t.Run("B-45 a maximum of 0 that is given is written, as the original does", func(t *testing.T) {
		st := storetest.Open(t, "memory")
		j := perstack.CreateInitialJob("zero", "coder", 0)
		j.StartedAt = 1700000000000
		const want = `{"id":"zero","status":"running","coordinatorExpertKey":"coder","totalSteps":0,"maxSteps":0,` + zeroUsage + `,"startedAt":1700000000000}`
		if raw := need(j.Raw()); string(raw) != want {
			t.Errorf("the job is\n%s, want\n%s", raw, want)
		}
		must(t, perstack.StoreJob(t.Context(), st, j))
		loaded := need(perstack.RetrieveJob(t.Context(), st, "zero"))
		loaded.MaxSteps = 4
		if raw := need(loaded.Raw()); string(raw) != strings.Replace(want, `"maxSteps":0`, `"maxSteps":4`, 1) {
			t.Errorf("the job with another maximum is %s", raw)
		}
		need(perstack.JobOf(st, "zero").Update(t.Context(), func(j *perstack.Job) error { j.MaxSteps = 4; return nil }))
		if raw := need(perstack.JobOf(st, "zero").JobBytes(t.Context())); string(raw) != strings.Replace(want, `"maxSteps":0`, `"maxSteps":4`, 1) {
			t.Errorf("the job with another maximum is stored as %s", raw)
		}
	})
}
