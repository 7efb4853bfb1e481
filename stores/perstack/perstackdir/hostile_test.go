package perstackdir_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit/layouttest"
	"github.com/tallylog/tally/internal/testkit/storetest"
	"github.com/tallylog/tally/stores/perstack"
)

// Unusual but valid events, checkpoints and files are exported byte for byte, and can be read.
func TestHostileFolders(t *testing.T) {
	base := small("a").files
	event := func(name, id, typ string, at, step int64) (string, string) {
		return "jobs/a/runs/run-a/event-" + name + ".json", fmt.Sprintf(`{"type":%q,"id":%q,"expertKey":"e","timestamp":%d,"jobId":"a","runId":"run-a","stepNumber":%d}`, typ, id, at, step)
	}
	self := strings.Replace(base[pathOf(base, "checkpoints/cp2")], `"usage":`, `"delegatedBy":{"expert":{"key":"e","name":"e","version":"1"},"toolCallId":"t","toolName":"n","checkpointId":"cp2","runId":"run-a"},"usage":`, 1)
	for name, files := range map[string][]string{
		"B9 a type with dashes":                       pair(event("5-1-a-b-c", "x", "a-b-c", 5, 1)),
		"B9 a type with dots":                         pair(event("5-1-a.b.c", "x", "a.b.c", 5, 1)),
		"B9 a type that is ..":                        pair(event("5-1-..", "x", "..", 5, 1)),
		"B9 steps out of order":                       append(pair(event("5-9-late", "x", "late", 5, 9)), pair(event("6-2-early", "y", "early", 6, 2))...),
		"B9 two files of one name but case":           append(pair(event("5-1-call", "x", "call", 5, 1)), pair(event("5-1-Call", "y", "Call", 5, 1))...),
		"B9 a checkpoint that points at itself":       {pathOf(base, "checkpoints/cp2"), self},
		"B9 events of a job that was never stored":    {"jobs/a/job.json", "-", "jobs/a/runs/run-a/run-setting.json", "-"},
		"B9 the largest number that every reader has": pair(event("9007199254740991-1-x", "x", "x", 1<<53-1, 1)),
	} {
		t.Run(name, func(t *testing.T) {
			st, files := storetest.Memory(t, tally.Config{}), layouttest.Change(base, files...)
			if r := mustComeBackOf(t, st, files); len(r.Problems) > 0 || r.Files.Whole > 0 && !strings.HasSuffix(name, "..") { // its file has another name here
				t.Errorf("the report is %+v", r)
			}
			list, err := perstack.GetEventContents(t.Context(), st, "a", "run-a")
			want := 0
			for path := range files {
				if strings.Contains(path, "/event-") {
					want++
				}
			}
			if err != nil || len(list) != want {
				t.Errorf("got %d events, want %d; error %v", len(list), want, err)
			}
			if tree, err := perstack.JobOf(st, "a").Tree(t.Context()); err != nil || len(tree) != 1 {
				t.Errorf("the runs are %v, error %v", tree, err)
			}
		})
	}
	t.Run("B9 a type of 10 KiB has no file name, and is in the log", func(t *testing.T) {
		st, typ := storetest.Memory(t, tally.Config{}), strings.Repeat("t", 10<<10)
		_, text := event("", "x", typ, 5, 1)
		if _, err := perstack.JobOf(st, "a").RecordRaw(t.Context(), events.Raw(text)); err != nil {
			t.Fatal(err)
		}
		list, err := perstack.GetEventContents(t.Context(), st, "a", "run-a")
		if err != nil || len(list) != 1 || list[0].Type != typ {
			t.Errorf("got %d events, error %v", len(list), err)
		}
	})
	t.Run("B9 steps are listed by their number", func(t *testing.T) {
		st := storetest.Memory(t, tally.Config{})
		mustBeClean(t, st, folder(t, layouttest.Change(base, append(pair(event("5-9-late", "x", "late", 5, 9)), pair(event("6-2-early", "y", "early", 6, 2))...)...)))
		metas, err := perstack.GetEventsByRun(t.Context(), st, "a", "run-a")
		if err != nil || !slices.IsSortedFunc(metas, func(a, b perstack.EventMeta) int { return int(a.StepNumber - b.StepNumber) }) || metas[len(metas)-1].Type != "late" {
			t.Errorf("the events are %v, error %v", metas, err)
		}
	})
}

func pair(path, content string) []string { return []string{path, content} }
