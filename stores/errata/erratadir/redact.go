package erratadir

import (
	"context"
	"iter"
	"path"
	"slices"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/stores/errata/internal/panel"
)

// The members of a redacted export. All others are omitted, also those of later writers. Required texts are written
// empty.
var (
	sharedMetadata = []string{"id", "created_at", "last_active_at", "models", "prompt_count", "config_hash", "runs"}
	sharedSummary  = []string{"timestamp", "prompt_hash", "prompt_preview", "models", "selected", "rating", "type", "latencies_ms", "costs_usd",
		"input_tokens", "output_tokens", "tool_calls", "proposed_writes_count", "config_hash"}
	sharedContent = []string{"session_id", "runs"}
	sharedRun     = []string{"prompt", "prompt_hash", "models"}
	sharedModel   = []string{"model_id", "text", "events", "stop_reason", "steps", "reasoning_tokens"}
	emptiedText   = []string{"prompt_preview", "prompt", "text"}
	sharedTexts   = []string{"id", "created_at", "last_active_at", "config_hash", "timestamp", "prompt_hash", "selected", "rating", "type", "session_id", "model_id", "stop_reason"}
)

// redactedFiles yields the shareable files of a session.
func (v view) redactedFiles(ctx context.Context) iter.Seq2[layouts.File, error] {
	return func(yield func(layouts.File, error) bool) {
		id := v.s.Subject.ID
		if _, ok := beside[id]; ok {
			return
		}
		show := func(name string, data []byte, err error, redact func(rawjson.Members) []byte) bool {
			if err == nil && data == nil {
				return true
			}
			if err == nil {
				data = redact(panel.Object(data))
			}
			return yield(privateFile(path.Join(dirOf(id), name), layouts.Derived, data), err)
		}
		content, err := v.content(ctx, false)
		if !show(contentName, content, err, redactContent) {
			return
		}
		metadata, err := v.metadata(ctx)
		show(metadataName, metadata, err, redactMetadata)
	}
}

func redactMetadata(m rawjson.Members) []byte {
	return panel.ObjectJSON(eachOf(shared(m, sharedMetadata, "runs"), "runs", func(run events.Raw) []byte {
		return panel.ObjectJSON(shared(panel.Object(run), sharedSummary))
	}))
}

func redactContent(m rawjson.Members) []byte {
	return panel.ObjectJSON(eachOf(shared(m, sharedContent, "runs"), "runs", func(run events.Raw) []byte {
		return panel.ObjectJSON(eachOf(shared(panel.Object(run), sharedRun, "models"), "models", func(model events.Raw) []byte {
			return panel.ObjectJSON(eachOf(shared(panel.Object(model), sharedModel, "events"), "events", nil))
		}))
	}))
}

// shared returns the shareable members of an object. The caller redacts those in opened.
func shared(m rawjson.Members, names []string, opened ...string) rawjson.Members {
	var out rawjson.Members
	for _, x := range m {
		if !slices.Contains(names, x.Name) {
			continue
		}
		switch {
		case slices.Contains(emptiedText, x.Name):
			x.Value = events.Raw(`""`)
		case !slices.Contains(opened, x.Name) && !isShared(x.Name, x.Value):
			x.Value = events.Raw("null")
		}
		out = append(out, x)
	}
	return out
}

// isShared reports whether a value has the expected form. A value of another form may contain anything.
func isShared(name string, raw events.Raw) bool {
	switch raw[0] {
	case '"':
		return slices.Contains(sharedTexts, name)
	case '[':
		list, _ := rawjson.Array(raw)
		return name == "models" && !slices.ContainsFunc(list, func(v events.Raw) bool { return v[0] != '"' })
	case '{':
		return !slices.Contains(sharedTexts, name) && !slices.ContainsFunc(panel.Object(raw), func(x rawjson.Member) bool { return x.Value[0] == '"' || !isShared("", x.Value) })
	}
	return true
}

// eachOf replaces the elements of a member that is an array. It omits an element if change returns nil.
func eachOf(m rawjson.Members, name string, change func(events.Raw) []byte) rawjson.Members {
	list, ok := panel.List(m, name)
	switch {
	case !ok: // of another form, so its content is unknown
		return panel.With(m, nil, name, events.Raw("null"))
	case list == nil:
		return m
	}
	out := []events.Raw{}
	for _, raw := range list {
		if change != nil {
			out = append(out, change(raw))
		}
	}
	return panel.With(m, nil, name, rawjson.AppendArray(nil, out))
}
