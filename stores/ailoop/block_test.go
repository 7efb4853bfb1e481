package ailoop_test

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/tallylog/tally/stores/ailoop"
)

// Every kind of block is read as it was written.
func TestBlocks(t *testing.T) {
	source := ailoop.MediaSource{Type: ailoop.SourceURL, URL: "https://x/y"}
	content := ailoop.ToolResultContent{Blocks: []ailoop.ToolResultPart{{Text: "t"}, {Image: &source}}}
	user := []ailoop.UserBlock{ailoop.TextBlock{Text: "a"}, ailoop.ToolResultBlock{CallID: "c", Content: content},
		ailoop.ImageBlock{Source: source}, ailoop.DocumentBlock{Source: source}}
	signature := "sig"
	assistant := []ailoop.AssistantBlock{ailoop.TextBlock{Text: "b"}, ailoop.ToolCallBlock{ID: "c", Name: "n", Args: json.RawMessage(`{"x":1}`)},
		ailoop.ReasoningBlock{Text: "r", Signature: &signature}, ailoop.RedactedReasoningBlock{Data: "d"}}
	asked, err := ailoop.NewUserMessage(user...)
	if err != nil {
		t.Fatal(err)
	}
	for i, b := range asked.Blocks() {
		if !reflect.DeepEqual(b, ailoop.Block(user[i])) {
			t.Errorf("got %#v, want %#v", b, user[i])
		}
	}
	answered, err := ailoop.NewAssistantMessage(assistant...)
	if err != nil {
		t.Fatal(err)
	}
	for i, b := range answered.Blocks() {
		if !reflect.DeepEqual(b, ailoop.Block(assistant[i])) {
			t.Errorf("got %#v, want %#v", b, assistant[i])
		}
	}
}
