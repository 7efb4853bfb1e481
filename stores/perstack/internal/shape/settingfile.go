package shape

import (
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
)

// written is a member as the original writes it after parsing: in this order, with defaults for missing members, and
// without unknown members.
type written struct {
	name     string
	standard string // JSON; "": it stays missing
	again    func(events.Raw) (events.Raw, error)
}

var (
	toolCallResultAgain = []written{{name: "toolCallId"}, {name: "toolName"}, {name: "skillName"}, {name: "text"}}
	inputAgain          = []written{{name: "text"}, {name: "interactiveToolCallResult", again: objectAgain(toolCallResultAgain)}}
	expertAgain         = []written{{name: "key"}, {name: "name"}, {name: "version"}, {name: "description"}, {name: "instruction"}, {name: "skills"}, {name: "delegates"}, {name: "tags"},
		{name: "providerTools"}, {name: "providerSkills"}, {name: "providerToolOptions"}}
	settingAgain = []written{{name: "model"}, {name: "providerConfig"}, {name: "jobId"}, {name: "runId"}, {name: "expertKey"}, {name: "input", again: objectAgain(inputAgain)},
		{name: "experts", again: eachAgain(objectAgain(expertAgain))}, {name: "reasoningBudget", standard: `"low"`}, {name: "maxSteps", standard: "100"}, {name: "maxRetries", standard: "5"},
		{name: "timeout", standard: "300000"}, {name: "startedAt"}, {name: "updatedAt"}, {name: "perstackApiBaseUrl"}, {name: "perstackApiKey"}, {name: "perstackBaseSkillCommand"},
		{name: "env"}, {name: "proxyUrl"}, {name: "verbose"}}
)

// SettingFile returns the setting as the original has it after a later call: it parses the file by its schema, sets the
// member updatedAt, and writes it. Values keep their bytes except for white space. If touched is "", SettingFile
// returns the setting unchanged.
func SettingFile(raw events.Raw, touched events.Timestamp) (events.Raw, error) {
	at, ok := touched.Time()
	if !ok {
		return raw, nil
	}
	again, err := objectAgain(settingAgain)(raw)
	if err != nil {
		return nil, err
	}
	return rawjson.SetMember(again, "updatedAt", events.Raw(itoa(at.UnixMilli())))
}

func objectAgain(members []written) func(events.Raw) (events.Raw, error) {
	return func(raw events.Raw) (events.Raw, error) {
		have, err := rawjson.Object(raw)
		if err != nil {
			return nil, err
		}
		var again rawjson.Members
		for _, m := range members {
			value, ok := have.Get(m.name)
			switch {
			case ok && m.again != nil:
				if value, err = m.again(value); err != nil {
					return nil, err
				}
			case !ok && m.standard == "":
				continue
			case !ok:
				value = events.Raw(m.standard)
			}
			again = append(again, rawjson.Member{Name: m.name, Value: value})
		}
		return compact(again), nil
	}
}

func eachAgain(one func(events.Raw) (events.Raw, error)) func(events.Raw) (events.Raw, error) {
	return func(raw events.Raw) (events.Raw, error) {
		have, err := rawjson.Object(raw)
		if err != nil {
			return nil, err
		}
		again := make(rawjson.Members, len(have))
		for i, m := range have {
			value, err := one(m.Value)
			if err != nil {
				return nil, err
			}
			again[i] = rawjson.Member{Name: m.Name, Value: value}
		}
		return compact(again), nil
	}
}

// compact returns an object without white space.
func compact(members rawjson.Members) events.Raw {
	b := []byte{'{'}
	for i, m := range members {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(rawjson.AppendString(b, m.Name), ':')
		b = rawjson.AppendCompact(b, m.Value)
	}
	return append(b, '}')
}
