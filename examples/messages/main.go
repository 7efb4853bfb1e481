// Command messages runs three agents and a person: one agent asks another, who answers, and asks the person, who does
// not.
package main

import (
	"context"
	"fmt"
	"time"

	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/projector"
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
	lead := must(tavern.NewAgent(ctx, st, tavern.NewAgentOptions{Name: "lead"}))
	under := &events.Lineage{Session: lead.Session().ID()}
	coder := must(tavern.NewAgent(ctx, st, tavern.NewAgentOptions{Name: "coder", Parent: under}))
	tester := must(tavern.NewAgent(ctx, st, tavern.NewAgentOptions{Name: "tester", Parent: under}))

	// The coder asks the tester. They are siblings, so their lead gets a copy.
	tests := tavern.InboxOf(st, tester.ID())
	must(tests.Send(ctx, tavern.Message{From: coder.ID(), Type: "question", Thread: "release", Expects: "verdict", Body: tavern.Text("Does it work?")}))
	for m, err := range tests.Follow(ctx, must(tests.Cursor(ctx))) {
		must(tests.Reply(ctx, must(m, err), tavern.Message{Body: tavern.Text("It does.")}))
		must(0, tests.Seen(ctx, m.Offset))
		break
	}

	// The coder asks the person, and an hour later a program lists the overdue messages.
	now := must(st.LogTime(ctx))
	question := tavern.Message{From: coder.ID(), Type: "question", Thread: "release", Expects: "approval", Deadline: now.Add(time.Minute), Body: tavern.Text("Ship it?")}
	must(tavern.InboxOf(st, tavern.User).Send(ctx, question))
	var mail projector.Mail
	for rec, err := range st.Log.Read(ctx, events.Range{Namespace: st.Namespace(), Kind: events.KindSession}) {
		mail.Apply(projector.Decode(must(rec, err)))
	}
	for _, asked := range mail.Open() {
		overdue := must(tavern.Overdue(st.Namespace(), asked, mail.At, now.Add(time.Hour)))
		fmt.Println("told:", must(overdue.Make(ctx, st)))
	}
	list, _, err := tavern.InboxOf(st, coder.ID()).List(ctx, tavern.Page{})
	for _, m := range must(list, err) {
		fmt.Printf("the coder has: %s (%s)\n", m.Type, m.Malfunction)
	}
	fmt.Println("unread by the lead:", must(tavern.InboxOf(st, lead.ID()).Unread(ctx)))
}
