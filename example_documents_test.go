package tally_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/projector"
)

func ExampleDocuments() {
	withDir(blackboard)
	// Output:
	// scout sees plan "1. look around"
	// writer was late: somebody else has written a revision meanwhile
	// writer sees "1. look around\n2. report\n"
	// plan has 3 revisions, the first is "1. look around"
	// on the board: note/found plan
}

// blackboard has two agents share a board of documents: each sees what the other writes, and
// neither overwrites what it has not seen.
func blackboard(ctx context.Context, dir string) error {
	st, err := embedded.Open(ctx, embedded.Options{Store: dir})
	if err != nil {
		return err
	}
	defer st.Close()
	board := st.Documents()

	first, err := board.Create(ctx, "board", "plan", tally.Write{Data: []byte("1. look around"), ContentType: "text/plain", Owner: "writer"})
	if err != nil {
		return err
	}

	// The scout waits for a new task, does it, and writes the result: both documents, or neither.
	for change, err := range board.Watch(ctx, projector.DocumentQuery{Kind: "board"}, 0) {
		if err != nil {
			return err
		}
		plan, err := change.Read(ctx)
		if err != nil {
			return err
		}
		fmt.Printf("scout sees %s %q\n", change.Subject.ID, plan.Data)
		err = board.Tx(ctx, func(tx *tally.Tx) error {
			plan, err := tx.Read(ctx, "board", "plan")
			if err != nil {
				return err
			}
			if err := tx.Create(ctx, "board", "note/found", tally.Write{Data: []byte("a door"), Owner: "scout"}); err != nil {
				return err
			}
			return tx.Update(ctx, "board", "plan", tally.Write{Data: append(plan.Data, "\n2. report"...)})
		})
		if err != nil {
			return err
		}
		break // later it continues from change.Offset
	}

	// The writer only knows the first revision. The conflict names the present one, and the writer continues from
	// there.
	next := tally.Write{Data: []byte("1. look around\n"), ContentType: "text/plain"}
	_, err = board.Update(ctx, "board", "plan", first.Offset, next)
	conflict, ok := errors.AsType[*tally.DocumentConflictError](err)
	if !ok {
		return err
	}
	fmt.Println("writer was late: somebody else has written a revision meanwhile")
	now, err := board.Read(ctx, "board", "plan")
	if err != nil {
		return err
	}
	if _, err := board.Update(ctx, "board", "plan", conflict.Have, tally.Write{Data: append(now.Data, '\n')}); err != nil {
		return err
	}
	if now, err = board.Read(ctx, "board", "plan"); err != nil {
		return err
	}
	fmt.Printf("writer sees %q\n", now.Data)

	history, err := board.History(ctx, "board", "plan", 0, 0)
	if err != nil {
		return err
	}
	then, err := board.ReadAt(ctx, "board", "plan", "#1")
	if err != nil {
		return err
	}
	fmt.Printf("plan has %d revisions, the first is %q\n", len(history), then.Data)

	list, _, err := board.List(ctx, projector.DocumentQuery{Kind: "board"})
	if err != nil {
		return err
	}
	fmt.Print("on the board:")
	for _, doc := range list {
		fmt.Print(" ", doc.Subject.ID)
	}
	fmt.Println()
	return nil
}
