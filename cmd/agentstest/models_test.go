package agentstest

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
)

type object = map[string]any

// A model imitates the models of OpenAI and Gemini. If a request offers a tool, the model calls it first, and answers
// with a sentence after the result. Requests are numbered, and the text and the tokens of an answer depend on the
// number.
type model struct {
	url      string
	requests atomic.Int64
	heard    atomic.Value // []string: speakers and texts in the last request
}

func newModel(t *testing.T) *model {
	t.Helper()
	m := &model{}
	mux := http.NewServeMux()
	answer := func(pattern string, reply func(w http.ResponseWriter, n int64, body []byte)) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				return // the agent was interrupted
			}
			w.Header().Set("Content-Type", "text/event-stream")
			reply(w, m.requests.Add(1), body)
		})
	}
	answer("POST /v1/responses", m.respond)
	answer("POST /v1/chat/completions", complete)
	answer("POST /v1beta/models/{call}", m.generate)
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, `{"object":"list","data":[{"id":"fake-model","object":"model"}]}`)
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	m.url = server.URL
	return m
}

// input is an item of a request.
type input struct {
	Type, Role string
	Content    []struct{ Text string }
}

// hears keeps the texts of the user and the model, without the agent's own texts.
func (m *model) hears(said []string) {
	m.heard.Store(slices.DeleteFunc(said, func(text string) bool {
		return strings.HasPrefix(text, "developer: ") || strings.HasPrefix(text, "user: <")
	}))
}

// saying returns the texts of the user and the model in the last request.
func (m *model) saying() []string { return slices.Clone(m.heard.Load().([]string)) }

func sentence(n int64) string { return fmt.Sprintf("The answer is number %d.", n) }

func shell(n int64) string { return fmt.Sprintf("echo tally-%d", n) }

// event sends one event.
func event(w io.Writer, kind string, data any) {
	b, err := json.Marshal(data)
	if err != nil {
		panic(err)
	}
	if kind != "" {
		fmt.Fprintf(w, "event: %s\n", kind)
	}
	fmt.Fprintf(w, "data: %s\n\n", b)
}

// respond answers a request of the Responses API.
func (m *model) respond(w http.ResponseWriter, n int64, body []byte) {
	var request struct {
		Tools []struct{ Name string }
		Input []input
	}
	if err := json.Unmarshal(body, &request); err != nil || len(request.Input) == 0 {
		http.Error(w, "no input", http.StatusBadRequest)
		return
	}
	var said []string
	for _, item := range request.Input {
		if item.Type == "message" {
			said = append(said, item.Role+": "+item.Content[0].Text)
		}
	}
	m.hears(said)
	item := object{"type": "message", "id": fmt.Sprint("msg_", n), "role": "assistant",
		"content": []any{object{"type": "output_text", "text": sentence(n), "annotations": []any{}}}}
	if len(request.Tools) > 0 && request.Input[len(request.Input)-1].Type == "message" {
		name, args := "shell", object{"command": []string{"bash", "-lc", shell(n)}}
		for _, tool := range request.Tools {
			if tool.Name == "exec_command" {
				name, args = tool.Name, object{"cmd": shell(n)}
			}
		}
		text, _ := json.Marshal(args)
		item = object{"type": "function_call", "id": fmt.Sprint("fc_", n), "call_id": fmt.Sprint("call_", n), "name": name, "arguments": string(text)}
	}
	response := object{"id": fmt.Sprint("resp_", n), "object": "response", "status": "in_progress", "output": []any{}}
	event(w, "response.created", object{"type": "response.created", "response": response})
	event(w, "response.output_item.added", object{"type": "response.output_item.added", "output_index": 0, "item": item})
	event(w, "response.output_item.done", object{"type": "response.output_item.done", "output_index": 0, "item": item})
	response["status"], response["output"] = "completed", []any{item}
	response["usage"] = object{"input_tokens": 1200 * n, "input_tokens_details": object{"cached_tokens": 1000 * (n - 1)},
		"output_tokens": 40, "output_tokens_details": object{"reasoning_tokens": 8}, "total_tokens": 1200*n + 40}
	event(w, "response.completed", object{"type": "response.completed", "response": response})
}

// complete answers a request of the Chat Completions API.
func complete(w http.ResponseWriter, n int64, body []byte) {
	var request struct {
		Tools    []any
		Messages []struct{ Role string }
	}
	if err := json.Unmarshal(body, &request); err != nil || len(request.Messages) == 0 {
		http.Error(w, "no messages", http.StatusBadRequest)
		return
	}
	delta, reason := object{"role": "assistant", "content": sentence(n)}, "stop"
	if len(request.Tools) > 0 && request.Messages[len(request.Messages)-1].Role == "user" {
		args, _ := json.Marshal(object{"command": shell(n)})
		call := object{"index": 0, "id": fmt.Sprint("call_", n), "type": "function", "function": object{"name": "bash", "arguments": string(args)}}
		delta, reason = object{"role": "assistant", "tool_calls": []any{call}}, "tool_calls"
	}
	chunk := func(delta object, reason any) object {
		return object{"id": fmt.Sprint("chatcmpl-", n), "object": "chat.completion.chunk", "created": 1, "model": "fake-model",
			"choices": []any{object{"index": 0, "delta": delta, "finish_reason": reason}}}
	}
	event(w, "", chunk(delta, nil))
	last := chunk(object{}, reason)
	last["usage"] = object{"prompt_tokens": 100 * n, "completion_tokens": 12, "total_tokens": 100*n + 12, "prompt_tokens_details": object{"cached_tokens": 40}}
	event(w, "", last)
	io.WriteString(w, "data: [DONE]\n\n")
}

// generate answers a request of the Gemini API.
func (m *model) generate(w http.ResponseWriter, n int64, body []byte) {
	var request struct {
		Tools    []any
		Contents []struct {
			Role  string
			Parts []struct {
				Text             string
				FunctionResponse any
			}
		}
	}
	if err := json.Unmarshal(body, &request); err != nil || len(request.Contents) == 0 {
		http.Error(w, "no contents", http.StatusBadRequest)
		return
	}
	var said []string
	for _, c := range request.Contents {
		for _, part := range c.Parts {
			if part.Text != "" {
				said = append(said, map[string]string{"user": "user: ", "model": "assistant: "}[c.Role]+part.Text)
			}
		}
	}
	m.hears(said)
	part := object{"text": sentence(n)}
	last := request.Contents[len(request.Contents)-1].Parts
	if len(request.Tools) > 0 && last[len(last)-1].FunctionResponse == nil {
		part = object{"functionCall": object{"name": "list_directory", "args": object{"dir_path": "."}}}
	}
	event(w, "", object{"candidates": []any{object{"content": object{"role": "model", "parts": []any{part}}, "finishReason": "STOP", "index": 0}},
		"usageMetadata": object{"promptTokenCount": 900 + n, "candidatesTokenCount": 20, "cachedContentTokenCount": 100, "thoughtsTokenCount": 7, "totalTokenCount": 927 + n},
		"modelVersion":  "fake", "responseId": fmt.Sprint("r", n)})
}
