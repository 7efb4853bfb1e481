package errata_test

import (
	"context"
	"fmt"
	"os"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/stores/errata"
)

// A panel of two models answers. The run is rewound, and the rewind undone.
func ExampleSession_Rewind() {
	dir, err := os.MkdirTemp("", "tally-example-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	if err := runPanel(context.Background(), dir); err != nil {
		panic(err)
	}
	// Output:
	// the run of "Write a poem." is withdrawn: [rewound]; gpt-5 has 0 turns
	// after the undo gpt-5 has 2 turns
	// spent 0.0125 USD
}

func runPanel(ctx context.Context, dir string) error {
	st, err := embedded.Open(ctx, embedded.Options{Store: dir})
	if err != nil {
		return err
	}
	defer st.Close()

	s := errata.Of(st, errata.NewID(errata.SessionIDPrefix))
	models := []string{"gpt-5", "claude"}
	answers := []errata.Response{{ModelID: "gpt-5", Text: "Roses are red."}, {ModelID: "claude", Text: "The sea is blue."}}
	added, err := s.AppendHistories(ctx, models, answers, "Write a poem.")
	if err != nil {
		return err
	}
	run, err := s.PersistRunState(ctx, errata.Run{Prompt: "Write a poem.", Responses: answers})
	if err != nil {
		return err
	}
	if err := s.AccumulateCost(ctx, tally.Cost{Model: "gpt-5", USD: "0.0125", Run: run}); err != nil {
		return err
	}
	entry := errata.RewindEntry{At: added.At, Run: run.ID, Prompt: "Write a poem.", HistoryLengths: added.Lengths}
	if _, err := s.PushRewindEntry(ctx, entry); err != nil {
		return err
	}

	// Files of the working tree would be restored first. This run wrote none.
	result, err := s.Rewind(ctx, errata.WorkTree{Dir: dir})
	if err != nil {
		return err
	}
	histories, err := s.Histories(ctx)
	if err != nil {
		return err
	}
	fmt.Printf("the run of %q is withdrawn: %s; gpt-5 has %d turns\n", entry.Prompt, result.Note, len(histories["gpt-5"]))

	if _, err := s.UndoRewind(ctx, errata.WorkTree{Dir: dir}); err != nil {
		return err
	}
	if histories, err = s.Histories(ctx); err != nil {
		return err
	}
	fmt.Printf("after the undo gpt-5 has %d turns\n", len(histories["gpt-5"]))
	spent, err := s.TotalCost(ctx)
	fmt.Println("spent", spent, "USD")
	return err
}
