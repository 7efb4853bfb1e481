package evals_test

import (
	"context"
	"iter"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/stores/evals"
)

// This block compiles only if each counterpart of a name of the original exists. T-35 requires that, and that
// docs/from-tally-evals.md lists them.
var (
	_ func(context.Context, embedded.Options) (*tally.Store, error) = embedded.Open

	_ func(context.Context, *tally.Store) ([]*evals.Conversation, error)                                 = evals.List
	_ func(context.Context, *tally.Store, string) (*evals.Conversation, bool, error)                     = evals.Get
	_ func(context.Context, *tally.Store, string) (*evals.Conversation, evals.Created, error)            = evals.Create
	_ func(context.Context, *tally.Store, string, *evals.Data) (*evals.Conversation, evals.Saved, error) = evals.Save
	_ func(*evals.Conversation, context.Context, *evals.TrajectoryMeta) (evals.Change, error)            = (*evals.Conversation).SaveTrajectoryMeta
	_ func(*evals.Conversation, context.Context) (*evals.TrajectoryMeta, error)                          = (*evals.Conversation).LoadTrajectoryMeta
	_ func(*evals.Conversation, context.Context, []evals.StepTrace) (evals.Change, error)                = (*evals.Conversation).SaveTrajectoryStepTraces
	_ func(*evals.Conversation, context.Context) ([]evals.StepTrace, error)                              = (*evals.Conversation).LoadTrajectoryStepTraces
	_ func(*evals.Conversation) string                                                                   = (*evals.Conversation).ID
	_ func(*evals.Conversation) string                                                                   = (*evals.Conversation).Path
	_ func(*evals.Conversation, context.Context) (*evals.Data, error)                                    = (*evals.Conversation).Load
	_ func(*evals.Conversation, context.Context, *evals.Data) (evals.Saved, error)                       = (*evals.Conversation).Save
	_ func(*evals.Conversation, context.Context) ([]*evals.Run, error)                                   = (*evals.Conversation).ListRuns
	_ func(*evals.Conversation, context.Context, string) (*evals.Run, bool, error)                       = (*evals.Conversation).GetRun
	_ func(*evals.Conversation, context.Context, evals.RunType, string) (*evals.Run, error)              = (*evals.Conversation).CreateRun
	_ func(*evals.Run) string                                                                            = (*evals.Run).ID
	_ func(*evals.Run) string                                                                            = (*evals.Run).Path
	_ func(*evals.Run) evals.RunType                                                                     = (*evals.Run).Type
	_ func(*evals.Run) (time.Time, bool)                                                                 = (*evals.Run).Timestamp
	_ func(*evals.Run, context.Context) (*evals.RunResult, error)                                        = (*evals.Run).Load
	_ func(*evals.Run, context.Context, events.Raw) (evals.SavedRun, error)                              = (*evals.Run).Save
	_ []evals.RunType                                                                                    = []evals.RunType{evals.TallyRun, evals.TrajectoryRun}
	_ func([]byte) (*evals.Data, error)                                                                  = evals.Decode
	_ func(*evals.Data) ([]byte, error)                                                                  = evals.Encode
	_ func(events.Raw) (*evals.Artifact, error)                                                          = evals.ParseArtifact
	_ func([]evals.StepTrace, string, events.Raw) (*evals.Data, error)                                   = evals.FromStepTraces
	_ func(*evals.Data, evals.TraceOptions) []evals.StepTrace                                            = evals.ToStepTraces
	_ func(time.Time) string                                                                             = evals.NewRunID
	_ func(time.Time) string                                                                             = evals.NewID
	_ func(time.Time) string                                                                             = evals.NewTrajectoryID
	_ func(string) (time.Time, bool)                                                                     = evals.TimestampOfID

	// These names have no counterpart in the original.
	_ func(*evals.Conversation, context.Context, ...evals.Step) (log.Ack, error)               = (*evals.Conversation).Append
	_ func(*evals.Conversation, context.Context, events.Offset) iter.Seq2[evals.Update, error] = (*evals.Conversation).Follow
	_ func(*evals.Conversation, context.Context, string) (*evals.Data, error)                  = (*evals.Conversation).LoadAt
	_ func(*evals.Conversation, context.Context) ([]*evals.Run, error)                         = (*evals.Conversation).PendingRuns
	_ func(*evals.Run, context.Context) ([]evals.RunVersion, error)                            = (*evals.Run).Versions
	_ func(*evals.Run, context.Context) (evals.Staleness, error)                               = (*evals.Run).Stale
)

// counterparts are the names of the original's API.
var counterparts = map[string]string{
	"TallyStore":                          "tally.Store",
	"TallyStore.open":                     "embedded.Open",
	"TallyStore.listConversations":        "evals.List",
	"TallyStore.getConversation":          "evals.Get",
	"TallyStore.createConversation":       "evals.Create",
	"TallyStore.saveConversation":         "evals.Save",
	"TallyStore.saveTrajectoryMeta":       "Conversation.SaveTrajectoryMeta",
	"TallyStore.loadTrajectoryMeta":       "Conversation.LoadTrajectoryMeta",
	"TallyStore.saveTrajectoryStepTraces": "Conversation.SaveTrajectoryStepTraces",
	"TallyStore.loadTrajectoryStepTraces": "Conversation.LoadTrajectoryStepTraces",
	"ConversationRef":                     "evals.Conversation",
	"ConversationRef.id":                  "Conversation.ID",
	"ConversationRef.path":                "Conversation.Path",
	"ConversationRef.load":                "Conversation.Load",
	"ConversationRef.save":                "Conversation.Save",
	"ConversationRef.listRuns":            "Conversation.ListRuns",
	"ConversationRef.getRun":              "Conversation.GetRun",
	"ConversationRef.createRun":           "Conversation.CreateRun",
	"RunRef":                              "evals.Run",
	"RunRef.id":                           "Run.ID",
	"RunRef.path":                         "Run.Path",
	"RunRef.type":                         "Run.Type",
	"RunRef.timestamp":                    "Run.Timestamp",
	"RunRef.load":                         "Run.Load",
	"RunRef.save":                         "Run.Save",
	"RunType":                             "evals.RunType",
	"decodeConversation":                  "evals.Decode",
	"encodeConversation":                  "evals.Encode",
	"decodeRunArtifact":                   "evals.ParseArtifact",
	"encodeRunArtifact":                   "Run.SaveArtifact",
	"stepTracesToConversation":            "evals.FromStepTraces",
	"conversationToStepTraces":            "evals.ToStepTraces",
	"generateRunId":                       "evals.NewRunID",
	"generateConversationId":              "evals.NewID",
	"generateTrajectoryId":                "evals.NewTrajectoryID",
	"extractTimestampFromId":              "evals.TimestampOfID",
	"Conversation":                        "evals.Data",
	"ConversationStep":                    "evals.Step",
	"StepTrace":                           "evals.StepTrace",
	"TrajectoryMeta":                      "evals.TrajectoryMeta",
	"TrajectoryRunMeta":                   "evals.TrajectoryRunMeta",
	"TallyRunArtifact":                    "evals.Artifact",
	"EvaluationReport":                    "evals.Report",
}

// The page lists each name of the original once, with its counterpart, and no other name.
func TestParityTable(t *testing.T) {
	t.Run("T-35 every name has one counterpart", func(t *testing.T) {
		page, err := os.ReadFile("../../docs/from-tally-evals.md")
		if err != nil {
			t.Fatal(err)
		}
		rows := make(map[string]string)
		for line := range strings.Lines(string(page)) {
			cells := strings.Split(line, "|")
			if len(cells) < 4 || !strings.HasPrefix(strings.TrimSpace(cells[1]), "`") {
				continue
			}
			name := strings.Trim(cells[1], " `")
			if _, twice := rows[name]; twice {
				t.Errorf("the page has two rows for %s", name)
			}
			rows[name] = strings.Trim(cells[2], " `")
		}
		for name, want := range counterparts {
			if rows[name] != want {
				t.Errorf("%s: the page says %q, want %q", name, rows[name], want)
			}
		}
		for name := range rows {
			if counterparts[name] == "" {
				t.Errorf("%s: the page has it, but the table lacks it", name)
			}
		}
	})
}
