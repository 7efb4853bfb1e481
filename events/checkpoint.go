package events

import "fmt"

// Kinds of checkpoints.
const (
	CheckpointRewind = "rewind"
	CheckpointResume = "resume"
	CheckpointStep   = "step"
)

// CheckpointSaved marks a point in a session that a user may want to go back to. A second one with the same id is a
// newer version.
type CheckpointSaved struct {
	ID        string         `json:"id"`
	Kind      string         `json:"kind"` // rewind, resume or step
	At        Offset         `json:"at"`   // below the event's own offset; 0: before everything
	Run       *RunRef        `json:"run,omitempty"`
	Step      int64          `json:"step,omitempty"`
	Status    string         `json:"status,omitempty"`
	Prompt    string         `json:"prompt,omitempty"`
	FeedIndex *int64         `json:"feedIndex,omitempty"` // of the producer's own display; -1: none
	Lengths   map[string]int `json:"lengths,omitempty"`
	Files     []SavedFile    `json:"files,omitempty"`
	Responses Raw            `json:"responses,omitempty"`
	Raw       Raw            `json:"raw,omitempty"`
	Parent    string         `json:"parent,omitempty"`
	Lists     Lists          `json:"lists,omitempty"` // arrays of Raw that consist of turns
	Unknown   Fields         `json:",unknown"`
}

// SavedFile is a file as it was at the checkpoint.
type SavedFile struct {
	Path string `json:"path"`
	Blob DocRef `json:"blob"` // or Absent
	Mode int64  `json:"mode,omitempty"`
}

func (p *CheckpointSaved) EventType() string { return TypeCheckpointSaved }

// Validate implements Payload.
func (p *CheckpointSaved) Validate() error {
	for i, f := range p.Files {
		path := fmt.Sprintf("files[%d]", i)
		if err := first(required(path+".path", f.Path), required(path+".blob", string(f.Blob)), f.Blob.check(path+".blob", true), notNegative(path+".mode", f.Mode)); err != nil {
			return err
		}
	}
	for _, name := range sortedKeys(p.Lengths) {
		if err := first(checkThread("lengths", name), notNegative(fmt.Sprintf("lengths[%q]", name), int64(p.Lengths[name]))); err != nil {
			return err
		}
	}
	return first(required("id", p.ID), oneOf("kind", p.Kind, CheckpointRewind, CheckpointResume, CheckpointStep),
		validOffset("at", p.At), p.Run.checkOptional("run"), notNegative("step", p.Step), validRaw("responses", p.Responses), validRaw("raw", p.Raw), p.Lists.check(p.Raw))
}

// CheckpointCleared removes checkpoints of a kind: one, or all.
type CheckpointCleared struct {
	Kind    string `json:"kind"`
	ID      string `json:"id,omitempty"`
	Reason  string `json:"reason"`
	Unknown Fields `json:",unknown"`
}

func (p *CheckpointCleared) EventType() string { return TypeCheckpointCleared }

// Validate implements Payload.
func (p *CheckpointCleared) Validate() error {
	return first(oneOf("kind", p.Kind, CheckpointRewind, CheckpointResume, CheckpointStep), required("reason", p.Reason))
}

// CostAccrued records money and tokens spent. Totals are the sum of this type only. If IsUnique accepts the id of the
// response, exactly one of the costs with one model and response in a namespace counts, for the session and the run of
// the first: the one with the most output tokens, the last of equals.
type CostAccrued struct {
	Model    string  `json:"model"`
	USD      Amount  `json:"usd,omitempty"`
	Tokens   *Tokens `json:"tokens,omitempty"`
	Run      *RunRef `json:"run,omitempty"`
	Response string  `json:"response,omitempty"` // the maker's id of the response that was paid for, at most MaxResponse bytes; "": none
	Purpose  string  `json:"purpose"`            // run, compaction, judge or other
	Source   string  `json:"source"`             // reported or computed
	Raw      Raw     `json:"raw,omitempty"`
	Unknown  Fields  `json:",unknown"`
}

// MaxResponse bounds the id of a response, in bytes.
const MaxResponse = 256

func (p *CostAccrued) EventType() string { return TypeCostAccrued }

// Validate implements Payload.
func (p *CostAccrued) Validate() error {
	if p.USD != "" {
		usd, ok := p.USD.Rat()
		if !ok {
			return wrong("usd", "%q is not a decimal such as 0.0125", string(p.USD))
		}
		if usd.Sign() < 0 || p.USD[0] == '-' {
			return wrong("usd", "%q is negative", string(p.USD))
		}
	}
	if len(p.Response) > MaxResponse {
		return wrong("response", "has %d bytes, at most %d are allowed", len(p.Response), MaxResponse)
	}
	return first(required("model", p.Model), p.Tokens.check("tokens"), p.Run.checkOptional("run"),
		oneOf("purpose", p.Purpose, "run", "compaction", "judge", "other"), oneOf("source", p.Source, "reported", "computed"), validRaw("raw", p.Raw))
}
