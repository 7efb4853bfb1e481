package perstackdir_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/internal/testkit/storetest"
	"github.com/tallylog/tally/stores/perstack"
)

// allParts are the parts of messages, and messagesOf the parts that each message may have.
var (
	allParts = map[string]string{
		"textPart":        `{"type":"textPart","id":"p","text":"x"}`,
		"imageUrlPart":    `{"type":"imageUrlPart","id":"p","url":"https://example.com/a.png","mimeType":"image/png"}`,
		"imageInlinePart": `{"type":"imageInlinePart","id":"p","encodedData":"aGk=","mimeType":"image/png"}`,
		"imageBinaryPart": `{"type":"imageBinaryPart","id":"p","data":"hi","mimeType":"image/png"}`,
		"fileUrlPart":     `{"type":"fileUrlPart","id":"p","url":"https://example.com/a.pdf","mimeType":"application/pdf"}`,
		"fileInlinePart":  `{"type":"fileInlinePart","id":"p","encodedData":"aGk=","mimeType":"application/pdf"}`,
		"fileBinaryPart":  `{"type":"fileBinaryPart","id":"p","data":"hi","mimeType":"application/pdf"}`,
		"toolCallPart":    `{"type":"toolCallPart","id":"p","toolCallId":"c","toolName":"t","args":{}}`,
		"toolResultPart":  `{"type":"toolResultPart","id":"p","toolCallId":"c","toolName":"t","contents":[{"type":"textPart","id":"q","text":"x"}],"isError":true}`,
		"thinkingPart":    `{"type":"thinkingPart","id":"p","thinking":"hm","signature":"s"}`,
		"unknownPart":     `{"type":"unknownPart","id":"p","text":"x"}`,
	}
	messagesOf = []string{"instructionMessage", "userMessage", "expertMessage", "toolMessage", "systemMessage"}
)

// oddCheckpoints returns checkpoints by their oddity: every part in every message, a part without one of its members,
// and other values at positions with a schema.
func oddCheckpoints() map[string]string {
	with := func(messages, more string) string {
		return `{"id":"ID","jobId":"a","runId":"r","status":"proceeding","stepNumber":1,"messages":[` + messages + `],"expert":{"key":"e","name":"e","version":"1"},"usage":` +
			js(usage(1)) + more + `}`
	}
	message := func(kind, parts string) string {
		return with(fmt.Sprintf(`{"type":%q,"id":"m","contents":[%s]}`, kind, parts), "")
	}
	odd := make(map[string]string)
	for _, kind := range messagesOf {
		odd["nothing in a "+kind] = message(kind, "")
		for name, part := range allParts {
			odd[name+" in a "+kind] = message(kind, part)
		}
	}
	for _, member := range []string{`,"text":"x"`, `,"url":"https://example.com/a.png"`, `,"encodedData":"aGk="`, `,"mimeType":"image/png"`, `,"data":"hi"`, `,"toolCallId":"c"`, `,"toolName":"t"`,
		`,"args":{}`, `,"contents":[{"type":"textPart","id":"q","text":"x"}]`, `,"thinking":"hm"`, `,"isError":true`, `,"signature":"s"`, `"id":"p",`} {
		for name, part := range allParts {
			for kind, is := range map[string]bool{"userMessage": strings.HasPrefix(name, "image"), "expertMessage": name == "toolCallPart" || name == "thinkingPart" || name == "textPart", "toolMessage": name == "toolResultPart"} {
				if is && strings.Contains(part, member) {
					odd[name+" without "+member] = message(kind, strings.Replace(part, member, "", 1))
				}
			}
		}
	}
	call := `{"id":"%s","skillName":"s","toolName":"t","args":%s}`
	for name, more := range map[string]string{
		"a call":                        fmt.Sprintf(`,"pendingToolCalls":[`+call+`]`, "c", "{}"),
		"a call of 255":                 fmt.Sprintf(`,"pendingToolCalls":[`+call+`]`, strings.Repeat("c", 253)+"\U0001f9f3", "{}"),
		"a call of 256":                 fmt.Sprintf(`,"pendingToolCalls":[`+call+`]`, strings.Repeat("c", 254)+"\U0001f9f3", "{}"),
		"a call of nothing":             fmt.Sprintf(`,"pendingToolCalls":[`+call+`]`, "", "{}"),
		"a call with a list":            fmt.Sprintf(`,"pendingToolCalls":[`+call+`]`, "c", "[]"),
		"a result":                      `,"partialToolResults":[{"id":"","skillName":"s","toolName":"t","result":[` + allParts["textPart"] + `,` + allParts["toolCallPart"] + `]}]`,
		"a result of an unknown part":   `,"partialToolResults":[{"id":"c","skillName":"s","toolName":"t","result":[` + allParts["unknownPart"] + `]}]`,
		"a result that is a text":       `,"partialToolResults":[{"id":"c","skillName":"s","toolName":"t","result":"x"}]`,
		"a runtime":                     `,"metadata":{"runtime":"docker","open":[1]}`,
		"a runtime of nobody":           `,"metadata":{"runtime":"toaster"}`,
		"metadata that is a list":       `,"metadata":[]`,
		"a member that is null":         `,"retryCount":null`,
		"an error":                      `,"error":{"name":"n","message":"m","isRetryable":false}`,
		"an error that says too little": `,"error":{"name":"n"}`,
		"a delegation":                  `,"delegateTo":[{"expert":{"key":"e","name":"e","version":"1"},"toolCallId":"c","toolName":"t","query":"q"}]`,
		"a delegation to nobody":        `,"delegateTo":[{"toolCallId":"c","toolName":"t","query":"q"}]`,
	} {
		odd[name] = with("", more)
	}
	odd["a message that is marked"] = with(`{"type":"userMessage","id":"m","contents":[],"cache":true}`, "")
	odd["a message that is marked by a word"] = with(`{"type":"userMessage","id":"m","contents":[],"cache":"yes"}`, "")
	odd["a result with a call in it"] = message("toolMessage", strings.Replace(allParts["toolResultPart"], `"contents":[`, `"contents":[`+allParts["toolCallPart"]+`,`, 1))
	odd["a result with an image in it"] = message("toolMessage", strings.Replace(allParts["toolResultPart"], `"contents":[`, `"contents":[`+allParts["imageUrlPart"]+`,`, 1))
	odd["a status of a job"] = strings.Replace(with("", ""), `"proceeding"`, `"running"`, 1)
	return odd
}

// A checkpoint that the original refuses to read, such as one with text in a tool's message, is refused when it is
// stored, with the position; one that it reads is stored. An import keeps both byte for byte, and reports the
// unreadable ones.
func TestCheckpointsAsTheOriginal(t *testing.T) {
	testkit.NotUnderRace(t)
	files, names := map[string]string{"jobs/a/job.json": newRuntime("a").play(0, 0).files["jobs/a/job.json"]}, make(map[string]string)
	for name, text := range oddCheckpoints() {
		id := fmt.Sprint("c", len(names))
		names[id], files["jobs/a/checkpoints/"+id+".json"] = name, strings.Replace(text, `"ID"`, js(id), 1)
	}
	dir := folder(t, files)
	read := oracleReads(t, dir[:len(dir)-len("/perstack")])
	if len(read.Jobs) != 1 || len(read.Jobs[0].Checkpoints) != len(names) {
		t.Fatalf("Node reads %d jobs", len(read.Jobs))
	}
	st, refused := storetest.Memory(t, tally.Config{}), make(map[string]bool)
	for _, c := range read.Jobs[0].Checkpoints {
		text := files["jobs/a/checkpoints/"+c.CheckpointID+".json"]
		_, err := perstack.JobOf(st, "a").SaveCheckpointRaw(t.Context(), events.Raw(text))
		invalid, is := errors.AsType[*events.InvalidError](err)
		if node := c.DefaultRetrieveCheckpoint.Error; is != (node != nil) || err != nil && (!is || !strings.HasPrefix(invalid.Field, "checkpoint.")) {
			t.Errorf("%s: stored with error %v, but Node returns %+v", names[c.CheckpointID], err, node)
		}
		refused["jobs/a/checkpoints/"+c.CheckpointID+".json"] = is
	}
	if names := oddCheckpoints(); names["textPart in a toolMessage"] == "" || len(names) < 90 {
		t.Errorf("tried only %d checkpoints", len(names))
	}
	r := mustComeBack(t, files)
	for _, p := range r.Problems {
		if !refused[p.File] {
			t.Errorf("%s is reported as unreadable, but Node reads it: %v", p.File, p)
		}
		delete(refused, p.File)
	}
	for name, is := range refused {
		if is {
			t.Errorf("%s is refused by a store, but the import does not report it", name)
		}
	}
}
