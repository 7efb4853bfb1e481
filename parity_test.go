package tally_test

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
)

// The names of the original and their counterparts. That this compiles is half of
// T-35, the page docs/from-tally-evals.md the other half.
var (
	_ func(context.Context, embedded.Options) (*tally.Store, error) = embedded.Open

	_ func(*tally.Store, context.Context) ([]*tally.Conversation, error)                                             = (*tally.Store).ListConversations
	_ func(*tally.Store, context.Context, string) (*tally.Conversation, bool, error)                                 = (*tally.Store).GetConversation
	_ func(*tally.Store, context.Context, string) (*tally.Conversation, tally.Created, error)                        = (*tally.Store).CreateConversation
	_ func(*tally.Store, context.Context, string, *tally.ConversationData) (*tally.Conversation, tally.Saved, error) = (*tally.Store).SaveConversation
	_ func(*tally.Conversation, context.Context, *tally.TrajectoryMeta) (tally.Change, error)                        = (*tally.Conversation).SaveTrajectoryMeta
	_ func(*tally.Conversation, context.Context) (*tally.TrajectoryMeta, error)                                      = (*tally.Conversation).LoadTrajectoryMeta
	_ func(*tally.Conversation, context.Context, []tally.StepTrace) (tally.Change, error)                            = (*tally.Conversation).SaveTrajectoryStepTraces
	_ func(*tally.Conversation, context.Context) ([]tally.StepTrace, error)                                          = (*tally.Conversation).LoadTrajectoryStepTraces
	_ func(*tally.Conversation) string                                                                               = (*tally.Conversation).ID
	_ func(*tally.Conversation) string                                                                               = (*tally.Conversation).Path
	_ func(*tally.Conversation, context.Context) (*tally.ConversationData, error)                                    = (*tally.Conversation).Load
	_ func(*tally.Conversation, context.Context, *tally.ConversationData) (tally.Saved, error)                       = (*tally.Conversation).Save
	_ func(*tally.Conversation, context.Context) ([]*tally.Run, error)                                               = (*tally.Conversation).ListRuns
	_ func(*tally.Conversation, context.Context, string) (*tally.Run, bool, error)                                   = (*tally.Conversation).GetRun
	_ func(*tally.Conversation, context.Context, tally.RunType, string) (*tally.Run, error)                          = (*tally.Conversation).CreateRun
	_ func(*tally.Run) string                                                                                        = (*tally.Run).ID
	_ func(*tally.Run) string                                                                                        = (*tally.Run).Path
	_ func(*tally.Run) tally.RunType                                                                                 = (*tally.Run).Type
	_ func(*tally.Run) (time.Time, bool)                                                                             = (*tally.Run).Timestamp
	_ func(*tally.Run, context.Context) (*tally.RunResult, error)                                                    = (*tally.Run).Load
	_ func(*tally.Run, context.Context, events.Raw) (tally.SavedRun, error)                                          = (*tally.Run).Save
	_ []tally.RunType                                                                                                = []tally.RunType{tally.TallyRun, tally.TrajectoryRun}
	_ func([]byte) (*tally.ConversationData, error)                                                                  = tally.DecodeConversation
	_ func(*tally.ConversationData) ([]byte, error)                                                                  = tally.EncodeConversation
	_ func(events.Raw) (*tally.TallyRunArtifact, error)                                                              = tally.ParseArtifact
	_ func([]tally.StepTrace, string, events.Raw) (*tally.ConversationData, error)                                   = tally.StepTracesToConversation
	_ func(*tally.ConversationData, tally.TraceOptions) []tally.StepTrace                                            = tally.ConversationToStepTraces
	_ func(time.Time) string                                                                                         = tally.NewRunID
	_ func(time.Time) string                                                                                         = tally.NewConversationID
	_ func(time.Time) string                                                                                         = tally.NewTrajectoryID
	_ func(string) (time.Time, bool)                                                                                 = tally.TimestampOfID

	// What the original has not.
	_ func(*tally.Conversation, context.Context, ...tally.Step) (log.Ack, error)               = (*tally.Conversation).Append
	_ func(*tally.Conversation, context.Context, events.Offset) iter.Seq2[tally.Update, error] = (*tally.Conversation).Follow
	_ func(*tally.Conversation, context.Context, string) (*tally.ConversationData, error)      = (*tally.Conversation).LoadAt
	_ func(*tally.Conversation, context.Context) ([]*tally.Run, error)                         = (*tally.Conversation).PendingRuns
	_ func(*tally.Run, context.Context) ([]tally.RunVersion, error)                            = (*tally.Run).Versions
	_ func(*tally.Run, context.Context) (tally.Staleness, error)                               = (*tally.Run).Stale
)

// counterparts are the names of the original's API.
var counterparts = map[string]string{
	"TallyStore":                          "tally.Store",
	"TallyStore.open":                     "embedded.Open",
	"TallyStore.listConversations":        "Store.ListConversations",
	"TallyStore.getConversation":          "Store.GetConversation",
	"TallyStore.createConversation":       "Store.CreateConversation",
	"TallyStore.saveConversation":         "Store.SaveConversation",
	"TallyStore.saveTrajectoryMeta":       "Conversation.SaveTrajectoryMeta",
	"TallyStore.loadTrajectoryMeta":       "Conversation.LoadTrajectoryMeta",
	"TallyStore.saveTrajectoryStepTraces": "Conversation.SaveTrajectoryStepTraces",
	"TallyStore.loadTrajectoryStepTraces": "Conversation.LoadTrajectoryStepTraces",
	"ConversationRef":                     "tally.Conversation",
	"ConversationRef.id":                  "Conversation.ID",
	"ConversationRef.path":                "Conversation.Path",
	"ConversationRef.load":                "Conversation.Load",
	"ConversationRef.save":                "Conversation.Save",
	"ConversationRef.listRuns":            "Conversation.ListRuns",
	"ConversationRef.getRun":              "Conversation.GetRun",
	"ConversationRef.createRun":           "Conversation.CreateRun",
	"RunRef":                              "tally.Run",
	"RunRef.id":                           "Run.ID",
	"RunRef.path":                         "Run.Path",
	"RunRef.type":                         "Run.Type",
	"RunRef.timestamp":                    "Run.Timestamp",
	"RunRef.load":                         "Run.Load",
	"RunRef.save":                         "Run.Save",
	"RunType":                             "tally.RunType",
	"decodeConversation":                  "tally.DecodeConversation",
	"encodeConversation":                  "tally.EncodeConversation",
	"decodeRunArtifact":                   "tally.ParseArtifact",
	"encodeRunArtifact":                   "Run.SaveArtifact",
	"stepTracesToConversation":            "tally.StepTracesToConversation",
	"conversationToStepTraces":            "tally.ConversationToStepTraces",
	"generateRunId":                       "tally.NewRunID",
	"generateConversationId":              "tally.NewConversationID",
	"generateTrajectoryId":                "tally.NewTrajectoryID",
	"extractTimestampFromId":              "tally.TimestampOfID",
	"Conversation":                        "tally.ConversationData",
	"ConversationStep":                    "tally.Step",
	"StepTrace":                           "tally.StepTrace",
	"TrajectoryMeta":                      "tally.TrajectoryMeta",
	"TrajectoryRunMeta":                   "tally.TrajectoryRunMeta",
	"TallyRunArtifact":                    "tally.TallyRunArtifact",
	"EvaluationReport":                    "tally.EvaluationReport",
}

// The page names each of them once, with its counterpart, and nothing else.
func TestParityTable(t *testing.T) {
	t.Run("T-35 every name has one counterpart", func(t *testing.T) {
		page, err := os.ReadFile("docs/from-tally-evals.md")
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
				t.Errorf("%s stands in two rows", name)
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
				t.Errorf("%s: on the page, but not in the table", name)
			}
		}
	})
}
