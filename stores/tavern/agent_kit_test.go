package tavern_test

import (
	"context"
	"testing"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/tavern"
)

const agentID = "8f14e45f-ceea-467f-a0e6-6c1b1b1f1b1f"

// agentFile is a node file as a person writes it.
const agentFile = "---\n# mine\nstate: idle\nid: 8F14E45F-CEEA-467F-A0E6-6C1B1B1F1B1F\ntitle:  Kettle\nmodel: big\n---\n\n## Assignment\n\nBoil.\n\n## Commitments\n\n- ⏳ **It boils**\n  why: because\n  - Assertion: `true`\n\nThe end"

// docsQuery selects the documents of the kind doc.
var docsQuery = projector.DocumentQuery{Kind: "doc"}

// newAgent creates an agent from agentFile.
func newAgent(t testing.TB, st *tally.Store) *tavern.Agent {
	t.Helper()
	return need(tavern.NewAgent(t.Context(), st, tavern.NewAgentOptions{File: []byte(agentFile)}))
}

// agentRecords counts the records of a store.
func agentRecords(ctx context.Context, st *tally.Store) (n int) {
	for _, err := range st.Log.Read(ctx, events.Range{}) {
		if err != nil {
			panic(err)
		}
		n++
	}
	return n
}
