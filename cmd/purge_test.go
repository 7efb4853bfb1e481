package cmd_test

import (
	"context"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/log"
)

// purge purges a document: purge STORE KIND ID.
func purge(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: purge STORE KIND ID")
	}
	ctx, doc := context.Background(), events.Document("", args[1], args[2])
	st, err := embedded.Open(ctx, embedded.Options{Store: ts.MkAbs(args[0]), Backend: "local"})
	ts.Check(err)
	defer st.Close()
	last, err := st.Log.Last(ctx, doc)
	ts.Check(err)
	e, err := events.New(st.Source(), doc, &events.DocumentDeleted{Reason: events.ReasonPurged})
	ts.Check(err)
	_, err = st.Append(ctx, doc, log.At(last.Offset), e)
	ts.Check(err)
}
