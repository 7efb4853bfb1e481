package tavern_test

import (
	"context"
	"fmt"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/log/memlog"
	"github.com/tallylog/tally/stores/tavern"
)

// A program asks a reviewer. The reviewer's mark and answer are one append, so a reviewer that is killed in between
// answers exactly once.
func ExampleInbox() {
	ctx := context.Background()
	l := need(log.OpenOn(ctx, memlog.New(memlog.Config{}), log.Config{}))
	st := need(tally.Open(ctx, l, tally.Config{}))
	defer st.Close()

	ci, reviewer := tavern.InboxOf(st, "ci"), tavern.InboxOf(st, "reviewer")
	for _, in := range []*tavern.Inbox{ci, reviewer} {
		if err := in.Open(ctx, ""); err != nil {
			fmt.Println(err)
		}
	}
	_, err := reviewer.Send(ctx, tavern.Message{Key: "build 7", From: "ci", Type: "question", Thread: "build", Expects: "verdict", Body: tavern.Text("ship it?")})
	if err != nil {
		fmt.Println(err)
	}

	for m, err := range reviewer.Follow(ctx, need(reviewer.Cursor(ctx))) {
		if err != nil {
			fmt.Println(err)
			break
		}
		_, answer, err := reviewer.ReplyParts(ctx, m, tavern.Message{Body: tavern.Text("yes")})
		if err == nil {
			_, err = st.AppendAll(ctx, append(answer, need(reviewer.SeenPart(ctx, m.Offset)))...)
		}
		fmt.Println(m.From, m.Type, string(m.Body), err)
		break
	}
	list, _, _ := ci.List(ctx, tavern.Page{})
	fmt.Println(list[0].From, list[0].Type, string(list[0].Body), need(reviewer.Unread(ctx)))

	_, err = tavern.InboxOf(st, "nobody").Send(ctx, tavern.Message{From: "ci", Type: "note", Thread: "build", Body: tavern.Text("hello?")})
	fmt.Println(err)
	// Output:
	// ci question "ship it?" <nil>
	// reviewer verdict "yes" 0
	// inbox "nobody": no such receiver
}
