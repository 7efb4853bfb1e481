package events

import "fmt"

// RunCreated announces a run. The first one counts. A run exists from the first
// event that names it, whatever its type.
type RunCreated struct {
	Run       RunRef    `json:"run"`
	Input     Raw       `json:"input,omitempty"`
	Template  DocRef    `json:"template,omitempty"`
	Setting   Raw       `json:"setting,omitempty"` // with placeholders for secrets
	Secrets   DocRef    `json:"secrets,omitempty"`
	Parent    *Lineage  `json:"parent,omitempty"`
	Models    []string  `json:"models,omitempty"`
	MaxSteps  int64     `json:"maxSteps,omitempty"`
	Owner     string    `json:"owner,omitempty"`
	After     []RunRef  `json:"after,omitempty"`
	DueAt     Timestamp `json:"dueAt,omitempty"`
	CreatedAt Timestamp `json:"createdAt,omitempty"`
	Unknown   Fields    `json:",unknown"`
}

func (p *RunCreated) EventType() string { return TypeRunCreated }

// Validate implements Payload.
func (p *RunCreated) Validate() error {
	for i, r := range p.After {
		if err := r.check(fmt.Sprintf("after[%d]", i)); err != nil {
			return err
		}
	}
	return first(p.Run.check("run"), p.Parent.check("parent"), p.Template.check("template", false), p.Secrets.check("secrets", false), p.DueAt.check("dueAt"),
		p.CreatedAt.check("createdAt"), notNegative("maxSteps", p.MaxSteps), validRaw("input", p.Input), validRaw("setting", p.Setting))
}

// RunStarted reports that a worker works on a run.
type RunStarted struct {
	Run        RunRef   `json:"run"`
	Worker     string   `json:"worker,omitempty"`
	Attempt    int64    `json:"attempt,omitempty"`
	LeaseUntil int64    `json:"leaseUntil,omitempty"` // Unix milliseconds
	Models     []string `json:"models,omitempty"`
	Raw        Raw      `json:"raw,omitempty"`
	Lists      Lists    `json:"lists,omitempty"` // arrays of Raw that are turns
	Unknown    Fields   `json:",unknown"`
}

func (p *RunStarted) EventType() string { return TypeRunStarted }

// Validate implements Payload.
func (p *RunStarted) Validate() error {
	return first(p.Run.check("run"), notNegative("attempt", p.Attempt), notNegative("leaseUntil", p.LeaseUntil), validRaw("raw", p.Raw), p.Lists.check(p.Raw))
}

// RunProgressed reports an event during a run.
type RunProgressed struct {
	Run        RunRef       `json:"run"`
	Kind       string       `json:"kind"`
	Thread     string       `json:"thread,omitempty"`
	Turn       string       `json:"turn,omitempty"`
	Seq        int64        `json:"seq,omitempty"`
	Step       int64        `json:"step,omitempty"`
	Raw        Raw          `json:"raw,omitempty"`
	State      *StateChange `json:"state,omitempty"`
	Delta      Raw          `json:"delta,omitempty"`
	Note       string       `json:"note,omitempty"`
	Usage      Raw          `json:"usage,omitempty"`
	LeaseUntil *int64       `json:"leaseUntil,omitempty"` // Unix milliseconds; 0: released
	Fence      Offset       `json:"fence,omitempty"`      // the run.started of the worker that reports it
	Lists      Lists        `json:"lists,omitempty"`      // arrays of Raw that are turns
	Unknown    Fields       `json:",unknown"`
}

// StateChange is a transition of a run's state machine.
type StateChange struct {
	From string `json:"from"`
	To   string `json:"to"`
}

func (p *RunProgressed) EventType() string { return TypeRunProgressed }

// Validate implements Payload.
func (p *RunProgressed) Validate() error {
	if p.LeaseUntil != nil && *p.LeaseUntil < 0 {
		return wrong("leaseUntil", "%d is negative", *p.LeaseUntil)
	}
	if p.State != nil && p.State.To == "" {
		return wrong("state.to", "missing")
	}
	return first(p.Run.check("run"), required("kind", p.Kind), notNegative("seq", p.Seq), notNegative("step", p.Step),
		validRaw("raw", p.Raw), validRaw("delta", p.Delta), validRaw("usage", p.Usage), validOffset("fence", p.Fence), p.Lists.check(p.Raw))
}

// RunFinished records a run's outcome. A second one for the same run is a newer
// version; the older stays readable.
type RunFinished struct {
	Run        RunRef                `json:"run"`
	Outcome    string                `json:"outcome"` // completed, failed, interrupted or stopped:<reason>
	Result     Raw                   `json:"result"`
	Schema     string                `json:"schema,omitempty"`
	Usage      Raw                   `json:"usage,omitempty"`
	Tools      Raw                   `json:"tools,omitempty"`
	FinishedAt Timestamp             `json:"finishedAt,omitempty"`
	Judged     *Judged               `json:"judged,omitempty"`
	Formats    map[string]FileFormat `json:"formats,omitempty"`
	Fence      Offset                `json:"fence,omitempty"` // the run.started of the worker that reports it
	Lists      Lists                 `json:"lists,omitempty"` // arrays of Result that are turns
	Unknown    Fields                `json:",unknown"`
}

// Judged lists the threads that a run looked at.
type Judged struct {
	Offset  Offset                  `json:"offset"`
	Threads map[string]JudgedThread `json:"threads"`
}

// JudgedThread is a thread's length and hash when it was judged.
type JudgedThread struct {
	Length int    `json:"length"`
	Hash   string `json:"hash"`
}

func (j *Judged) check(path string) error {
	if j == nil {
		return nil
	}
	if j.Threads == nil {
		return wrong(path+".threads", "missing")
	}
	for _, name := range sortedKeys(j.Threads) {
		t, at := j.Threads[name], fmt.Sprintf("%s.threads[%q]", path, name)
		if err := first(checkThread(path+".threads", name), notNegative(at+".length", int64(t.Length)), required(at+".hash", t.Hash)); err != nil {
			return err
		}
	}
	return validOffset(path+".offset", j.Offset)
}

func (p *RunFinished) EventType() string { return TypeRunFinished }

// Validate implements Payload.
func (p *RunFinished) Validate() error { return p.validate(validRaw) }

func (p *RunFinished) validate(raw rawCheck) error {
	if len(p.Result) == 0 {
		return wrong("result", "missing")
	}
	return first(p.Run.check("run"), stoppedOr("outcome", p.Outcome, "completed", "failed", "interrupted"), p.Judged.check("judged"), p.FinishedAt.check("finishedAt"), raw("result", p.Result), raw("usage", p.Usage),
		raw("tools", p.Tools), checkFormats(p.Formats), validOffset("fence", p.Fence), p.Lists.check(p.Result))
}

// RunAnnotated is a person's annotation of a run.
type RunAnnotated struct {
	Run          RunRef    `json:"run"`
	Note         *string   `json:"note,omitempty"`
	Selected     *string   `json:"selected,omitempty"`
	Rating       *string   `json:"rating,omitempty"`
	AppliedFiles []string  `json:"appliedFiles,omitempty"`
	TouchedAt    Timestamp `json:"touchedAt,omitempty"`
	Tags         []string  `json:"tags,omitempty"`
	Unknown      Fields    `json:",unknown"`
}

func (p *RunAnnotated) EventType() string { return TypeRunAnnotated }

// Validate implements Payload.
func (p *RunAnnotated) Validate() error {
	return first(p.Run.check("run"), p.TouchedAt.check("touchedAt"))
}
