package ailoop_test

import (
	"context"
	"fmt"
	"os"

	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/stores/ailoop"
)

// A chat loop keeps its history in a HistoryStore. It stops after the first question, starts again, and continues the
// conversation.
func ExampleHistoryStore() {
	dir, err := os.MkdirTemp("", "tally-example-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	for _, question := range []string{"My order is late.", "Number 17."} {
		if err := session(context.Background(), dir, question); err != nil {
			panic(err)
		}
	}
	// Output:
	// 0 messages before
	// assistant: You said: My order is late.
	// 2 messages before
	// assistant: You said: Number 17.
}

// session is one run of the program.
func session(ctx context.Context, dir, question string) error {
	st, err := embedded.Open(ctx, embedded.Options{Store: dir})
	if err != nil {
		return err
	}
	defer st.Close()
	return ask(ctx, ailoop.Of(st, "support-42"), question) // or a File, or an InMemory
}

// ask is one turn of the loop. It loads the conversation so far, and saves the new messages before it shows the
// answer.
func ask(ctx context.Context, history ailoop.HistoryStore, question string) error {
	chat, _, err := history.Load(ctx)
	if err != nil {
		return err
	}
	fmt.Println(chat.Len(), "messages before")

	chat = chat.Append(ailoop.UserMessage(question))
	if err := history.Save(ctx, chat); err != nil { // stores one message, however long the history is
		return err
	}
	answer := ailoop.AssistantMessage(model(chat))
	if err := history.Save(ctx, chat.Append(answer)); err != nil {
		return err
	}
	fmt.Println("assistant:", answer.Text())
	return nil
}

// model is a stand-in for a call of a model with the conversation.
func model(chat ailoop.Snapshot) string {
	return "You said: " + chat.Message(chat.Len()-1).Text()
}
