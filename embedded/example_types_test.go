package embedded_test

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/log"
)

type Vote struct {
	For string `json:"for"`
}

var VoteCast = events.Define[Vote]("com.acme.vote.cast.v2", events.WithThread). // or events.InLedger
										Schema(json.RawMessage(`{"required": ["for"]}`)).
										From("com.acme.vote.cast.v1", upVote)

// upVote converts the data of a vote of version 1, which is a string.
func upVote(data []byte) ([]byte, error) {
	var choice string
	if err := json.Unmarshal(data, &choice); err != nil {
		return nil, err
	}
	return json.Marshal(Vote{For: choice})
}

// A program defines a type of events, appends events of it, and reads them together with those of an older version.
func ExampleOptions_types() {
	ctx := context.Background()
	st, err := embedded.Open(ctx, embedded.Options{Backend: "memory", Types: []events.Type{VoteCast.Type}})
	if err != nil {
		panic(err)
	}
	defer st.Close()
	sub := events.Session("", "meeting")
	e, err := VoteCast.New(sub, Vote{For: "b"})
	if err != nil {
		panic(err)
	}
	old := events.Event{Type: "com.acme.vote.cast.v1", Data: []byte(`"a"`)}
	if _, err := st.Append(ctx, sub, log.Any, old, e); err != nil {
		panic(err)
	}
	_, err = st.Append(ctx, sub, log.Any, events.Event{Type: VoteCast.Name, Data: []byte(`{}`)})
	fmt.Println(err)
	for rec, err := range st.Log.Read(ctx, events.Range{Subject: sub}) {
		if err != nil {
			panic(err)
		}
		if v, ok, err := VoteCast.In(rec.Event); ok {
			fmt.Println(v.For, err)
		}
	}
	// Output:
	// append to session meeting: invalid data: missing property 'for'
	// a <nil>
	// b <nil>
}
