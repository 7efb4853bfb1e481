package view_test

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/projector/view"
)

type Vote struct {
	For string `json:"for"`
}

var VoteCast = events.Define[Vote]("com.example.vote.cast.v2", events.WithThread).From("com.example.vote.cast.v1", upVote)

// upVote converts the data of a vote of version 1, which is a string.
func upVote(data []byte) ([]byte, error) {
	var choice string
	if err := json.Unmarshal(data, &choice); err != nil {
		return nil, err
	}
	return json.Marshal(Vote{For: choice})
}

type Count struct{ By map[string]int }

var Votes = view.Fold[Count]{
	Name: "votes", Version: 1, Types: []events.Type{VoteCast.Type},
	New: func() *Count { return &Count{By: make(map[string]int)} },
	Apply: func(c *Count, f projector.Fact) error {
		v, ok, err := VoteCast.In(f.Event)
		if ok {
			c.By[v.For]++
		}
		return err
	},
}

// A program counts the votes of each session. A rewind takes votes back.
func ExampleFold() {
	ctx := context.Background()
	st, err := embedded.Open(ctx, embedded.Options{Backend: "memory", Views: []view.View{Votes.View()}})
	check(err)
	defer st.Close()
	meeting := events.Session("", "meeting")
	first := cast(ctx, st, meeting, "a")
	last := cast(ctx, st, meeting, "b")
	check(st.Wait(ctx, "votes", last))
	count, _, err := Votes.Get(ctx, st, meeting)
	fmt.Println(count.By, err)

	move, err := st.Session("meeting").PlanRewind(ctx, first.String(), "")
	check(err)
	ack, err := st.Session("meeting").Move(ctx, move)
	check(err)
	check(st.Wait(ctx, "votes", ack.Last))
	count, _, err = Votes.Get(ctx, st, meeting)
	fmt.Println(count.By, err)

	count, err = Votes.At(ctx, st, meeting, last) // as it was
	fmt.Println(count.By, err)
	// Output:
	// map[a:1 b:1] <nil>
	// map[a:1] <nil>
	// map[a:1 b:1] <nil>
}

var Board = view.Own{
	Name: "board", Version: 1, Types: []events.Type{VoteCast.Type},
	Tables: []string{"votes"},
	Schema: `CREATE TABLE votes{set}(namespace, id, choice, n INTEGER, PRIMARY KEY(choice, namespace, id))`,
	Apply: func(ctx context.Context, t view.Tables, f projector.Fact) error {
		v, ok, err := VoteCast.In(f.Event)
		if ok {
			err = t.Exec(ctx, `INSERT INTO votes{set} VALUES(?,?,?,1) ON CONFLICT DO UPDATE SET n=n+1`, f.Subject.Namespace, f.Subject.ID, v.For)
		}
		return err
	},
	Forget: func(ctx context.Context, t view.Tables, sub events.Subject) error {
		return t.Exec(ctx, `DELETE FROM votes{set} WHERE namespace=? AND id=?`, sub.Namespace, sub.ID)
	},
}

// winner returns the choice with most votes, over all sessions.
func winner(ctx context.Context, st *tally.Store) (choice string, n int, err error) {
	db, err := st.View(ctx, "board")
	if err != nil {
		return "", 0, err
	}
	defer db.Close()
	err = db.QueryRowContext(ctx, `SELECT choice, sum(n) FROM votes GROUP BY choice ORDER BY 2 DESC, 1`).Scan(&choice, &n)
	return choice, n, err
}

// A program counts votes over all sessions.
func ExampleOwn() {
	ctx := context.Background()
	st, err := embedded.Open(ctx, embedded.Options{Backend: "memory", Views: []view.View{Board.View()}})
	check(err)
	defer st.Close()
	cast(ctx, st, events.Session("", "one"), "a")
	cast(ctx, st, events.Session("", "one"), "b")
	last := cast(ctx, st, events.Session("", "two"), "b")
	check(st.Wait(ctx, "board", last))
	fmt.Println(winner(ctx, st))
	// Output: b 2 <nil>
}

// cast appends a vote, and returns its offset.
func cast(ctx context.Context, st *tally.Store, sub events.Subject, choice string) events.Offset {
	e, err := VoteCast.New(sub, Vote{choice})
	check(err)
	ack, err := st.Append(ctx, sub, log.Any, e)
	check(err)
	return ack.Last
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
