// Command changesets runs a merge queue: two agents change one document, each on a copy. The changes are merged one
// after the other, and an agent with a conflict learns of the change before it.
package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/stores/tavern"
)

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func main() {
	ctx := context.Background()
	st := must(embedded.Open(ctx, embedded.Options{Backend: "memory"}))
	defer st.Close()
	must(st.Documents().Create(ctx, "doc", "menu", tally.Write{Data: []byte("tea\n")}))
	merges := tavern.ChangesetsOf(st, "main")
	must(0, merges.Create(ctx, tavern.QueueSettings{}))
	propose(ctx, st, merges, "ada", "tea\ncoffee\n")
	propose(ctx, st, merges, "ben", "tea\nmilk\n")

	for range 2 {
		m := must(merges.Next(ctx, "merger"))
		err := m.Apply(ctx)
		if conflict, ok := errors.AsType[*tavern.ChangesetConflictError](err); ok {
			fmt.Println(m.Changeset.Owner, "is not merged: the menu has moved on")
			must(0, m.Fail(ctx, conflict.Error(), false)) // ben reads the document again, and proposes a new change
			continue
		}
		must(0, err)
		fmt.Println(m.Changeset.Owner, "is merged")
	}
	fmt.Print(string(must(st.Documents().Read(ctx, "doc", "menu")).Data))
}

// propose lets an agent edit a copy of a document, and requests a merge.
func propose(ctx context.Context, st *tally.Store, merges *tavern.Changesets, agent, menu string) {
	overlay := tavern.OverlayOf(st, agent)
	must(overlay.Write(ctx, "menu", tally.Write{Data: []byte(menu)}))
	var changes []tavern.Change
	for _, c := range must(overlay.Changes(ctx)) {
		changes = append(changes, tavern.Change{Document: c.Subject, Base: c.Base, Overlay: c.Overlay, Revision: c.Revision})
	}
	must(merges.Propose(ctx, tavern.Changeset{Owner: agent, Changes: changes}))
}
