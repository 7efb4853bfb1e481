package perstack_test

import (
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
)

// A played is one output of a runtime: an event or a checkpoint, as JSON.
type played struct {
	kind string // type of the event, or "checkpoint"
	raw  events.Raw
}

// A runtime plays an agent runtime: a step asks a model, calls a tool, and ends with a checkpoint. Each message, call
// and result is made once, and repeated byte for byte, as in the original.
type runtime struct {
	job, run  string
	step      int
	size      int // bytes of new text in a step
	messages  []string
	last      string // checkpoint
	random    *rand.Rand
	words     []string
	ids, ms   int
	out       func(played)
	distinct  map[[sha256.Size]byte]int // sizes of the made values
	said      int                       // bytes of messages among them
	usage     string
	delegated string // member of a delegate's checkpoints
}

func newRuntime(job string, size int, out func(played)) *runtime {
	r := &runtime{job: job, run: "run-0", size: size, ms: 1760000000000, out: out, random: rand.New(rand.NewPCG(7, 11)), distinct: make(map[[sha256.Size]byte]int)}
	for range 3000 {
		word := make([]byte, 2+r.random.IntN(9))
		for i := range word {
			word[i] = byte('a' + r.random.IntN(26))
		}
		r.words = append(r.words, string(word))
	}
	return r
}

func (r *runtime) id() string {
	r.ids++
	return fmt.Sprintf("%s-%024x", r.job, r.ids)
}

// text returns n bytes of new text, of few frequent and many rare words.
func (r *runtime) text(n int) string {
	var b strings.Builder
	for b.Len() < n {
		x := r.random.Float64()
		b.WriteString(r.words[int(x*x*x*float64(len(r.words)))])
		b.WriteByte(' ')
	}
	return b.String()[:n]
}

// made notes a value.
func (r *runtime) made(raw string) string {
	r.distinct[sha256.Sum256([]byte(raw))] = len(raw)
	return raw
}

func (r *runtime) message(typ, part string) string {
	m := r.made(fmt.Sprintf(`{"type":%q,"contents":[%s],"id":%q}`, typ, part, r.id()))
	r.said += len(m)
	return m
}

func (r *runtime) textPart(n int) string {
	return fmt.Sprintf(`{"type":"textPart","text":%q,"id":%q}`, r.text(n), r.id())
}

func (r *runtime) tokens() string {
	in, out := 1000+r.random.IntN(9000), r.random.IntN(900)
	return fmt.Sprintf(`{"inputTokens":%d,"outputTokens":%d,"reasoningTokens":0,"totalTokens":%d,"cachedInputTokens":0}`, in, out, in+out)
}

const expertJSON = `{"key":"@acme/coder","name":"@acme/coder","version":"1.0.0"}`

func array(values []string) string { return "[" + strings.Join(values, ",") + "]" }

// event emits an event.
func (r *runtime) event(typ, members string) {
	r.ms += 1 + r.random.IntN(40)
	raw := fmt.Sprintf(`{"type":%q,"id":%q,"expertKey":"@acme/coder","timestamp":%d,"jobId":%q,"runId":%q,"stepNumber":%d,%s}`, typ, r.id(), r.ms, r.job, r.run, r.step, members)
	r.out(played{typ, events.Raw(raw)})
}

// checkpoint returns the present state of the run.
func (r *runtime) checkpoint(id, status string, step int, more string) string {
	return fmt.Sprintf(`{"id":%q,"jobId":%q,"runId":%q,"status":%q,"stepNumber":%d,"messages":%s,"expert":%s%s,"usage":%s,"contextWindow":200000,"contextWindowUsage":0.1%s}`,
		id, r.job, r.run, status, step, array(r.messages), expertJSON, r.delegated, r.usage, more)
}

func (r *runtime) save(raw string) { r.out(played{"checkpoint", events.Raw(raw)}) }

// start begins a run with the request of a user or another run.
func (r *runtime) start() {
	r.usage = r.tokens()
	r.last = r.id()
	initial := r.checkpoint(r.last, "init", r.step, "")
	asked := []string{r.message("userMessage", r.textPart(300))}
	if len(r.messages) == 0 {
		asked = append([]string{r.message("instructionMessage", r.textPart(r.size))}, asked...)
	}
	r.event("startRun", fmt.Sprintf(`"initialCheckpoint":%s,"inputMessages":%s`, initial, array(asked)))
	r.messages = append(r.messages, asked...)
}

// call returns a tool call and the expert's message with it.
func (r *runtime) call(typ string) (message, call string) {
	id := r.id()
	args := fmt.Sprintf(`{"path":%q}`, r.text(60))
	call = r.made(fmt.Sprintf(`{"id":%q,"skillName":"@acme/base","toolName":"readTextFile","args":%s}`, id, args))
	message = r.message("expertMessage", r.textPart(r.size/2)+fmt.Sprintf(`,{"type":"toolCallPart","toolCallId":%q,"toolName":"readTextFile","args":%s,"id":%q}`, id, args, r.id()))
	member := `"toolCalls":[` + call + `]`
	if typ == "callInteractiveTool" {
		member = `"toolCall":` + call
	}
	r.event(typ, fmt.Sprintf(`"newMessage":%s,%s,"usage":%s`, message, member, r.tokens()))
	return message, call
}

// result returns the result of a call, and the message with it.
func (r *runtime) result(call string) (result, message string) {
	m, _ := rawjson.Object([]byte(call))
	id, text := m.Text("id"), r.textPart(r.size/2)
	result = r.made(fmt.Sprintf(`{"id":%q,"skillName":"@acme/base","toolName":"readTextFile","result":[%s]}`, id, text))
	message = r.message("toolMessage", fmt.Sprintf(`{"type":"toolResultPart","toolCallId":%q,"toolName":"readTextFile","contents":[%s],"id":%q}`, id, text, r.id()))
	return result, message
}

// generate asks the model.
func (r *runtime) generate() {
	r.step++
	r.event("startGeneration", `"messages":`+array(r.messages))
}

// stepOf returns a step with its messages.
func (r *runtime) stepOf(messages []string, call, result string) string {
	results := ""
	if result != "" {
		results = `,"toolResults":[` + result + `]`
	}
	return fmt.Sprintf(`{"stepNumber":%d,"newMessages":%s,"toolCalls":[%s]%s,"usage":%s,"startedAt":%d,"finishedAt":%d}`,
		r.step, array(messages), call, results, r.tokens(), r.ms-30, r.ms)
}

// finish ends a step after a tool call: the result becomes a message, and the step a checkpoint.
func (r *runtime) finish(said, call string) {
	result, told := r.result(call)
	r.event("resolveToolResults", `"toolResults":[`+result+`]`)
	if r.step%10 == 9 { // a call of several
		r.event("finishToolCall", `"newMessages":[`+told+`]`)
	}
	r.event("finishAllToolCalls", `"newMessages":[`+told+`]`)
	r.carryOn([]string{said, told}, call, result)
}

func (r *runtime) carryOn(more []string, call, result string) {
	before := r.checkpoint(r.last, "proceeding", r.step-1, "")
	r.messages = append(r.messages, more...)
	r.last = r.id()
	r.usage = r.tokens()
	next := r.checkpoint(r.last, "proceeding", r.step, "")
	r.event("continueToNextStep", fmt.Sprintf(`"checkpoint":%s,"step":%s,"nextCheckpoint":%s`, before, r.stepOf(more, call, result), next))
	r.save(next)
}

// toolStep is a step with a tool call.
func (r *runtime) toolStep() {
	r.generate()
	if r.step%20 == 7 {
		sorry := []string{r.message("expertMessage", r.textPart(200)), r.message("userMessage", r.textPart(100))}
		r.event("retry", fmt.Sprintf(`"reason":"no tool was called","newMessages":%s,"usage":%s`, array(sorry), r.tokens()))
		r.messages = append(r.messages, sorry...)
	}
	said, call := r.call("callTools")
	r.finish(said, call)
}

// stop ends a run with a pending call, which is in the checkpoint.
func (r *runtime) stop(calls, stops, status string) (said, call string) {
	r.generate()
	said, call = r.call(calls)
	r.ended(stops, status, []string{said}, call, `,"pendingToolCalls":[`+call+`],"partialToolResults":[]`)
	return said, call
}

// ended ends a run with a checkpoint.
func (r *runtime) ended(typ, status string, more []string, call, members string) {
	r.messages = append(r.messages, more...)
	r.last = r.id()
	c := r.checkpoint(r.last, status, r.step, members)
	if typ == "completeRun" {
		r.event(typ, fmt.Sprintf(`"checkpoint":%s,"step":%s,"text":"It is done.","usage":%s`, c, r.stepOf(more, call, ""), r.usage))
	} else {
		failed := ""
		if typ == "stopRunByError" {
			failed = `,"error":{"name":"APIError","message":"overloaded","statusCode":529,"isRetryable":true}`
		}
		r.event(typ, fmt.Sprintf(`"checkpoint":%s,"step":%s%s`, c, r.stepOf(more, call, ""), failed))
	}
	r.save(c)
}

// resume continues with the pending call.
func (r *runtime) resume(_, call string) {
	result, told := r.result(call)
	r.event("resumeToolCalls", `"pendingToolCalls":[`+call+`],"partialToolResults":[`+result+`]`)
	r.event("finishAllToolCalls", `"newMessages":[`+told+`]`)
	r.carryOn([]string{told}, call, result)
}

// complete is the last step of a run.
func (r *runtime) complete() {
	r.generate()
	said, call := r.call("callTools")
	result, told := r.result(call)
	r.event("attemptCompletion", `"toolResult":`+result)
	r.ended("completeRun", "completed", []string{said, told}, call, "")
}

// delegate lets another run work, and continues under a new id.
func (r *runtime) delegate(child, next string) {
	said, call := r.stop("callDelegate", "stopRunByDelegate", "stoppedByDelegate")
	messages, run, step, parent := r.messages, r.run, r.step, r.last
	m, _ := rawjson.Object([]byte(call))
	r.delegated = fmt.Sprintf(`,"delegatedBy":{"expert":%s,"toolCallId":%q,"toolName":"readTextFile","checkpointId":%q,"runId":%q}`, expertJSON, m.Text("id"), parent, run)
	r.messages, r.run = nil, child
	r.start()
	r.toolStep()
	r.complete()
	r.messages, r.run, r.step, r.last, r.delegated = messages, next, step, parent, ""
	r.start()
	r.resume(said, call)
}

// play plays a job with a number of steps, with every possible type of event that changes a state.
func (r *runtime) play(steps int) {
	r.start()
	for r.step < steps-1 {
		switch r.step {
		case steps / 5:
			r.resume(r.stop("callInteractiveTool", "stopRunByInteractiveTool", "stoppedByInteractiveTool"))
		case 2 * steps / 5:
			r.delegate("run-child", "run-1")
		case 3 * steps / 5:
			r.resume(r.stop("callTools", "stopRunByExceededMaxSteps", "stoppedByExceededMaxSteps"))
		case 4 * steps / 5:
			r.resume(r.stop("callTools", "stopRunByError", "stoppedByError"))
		default:
			r.toolStep()
		}
	}
	r.complete()
}

// states are the types of events that change the state of a run.
var states = []string{"startRun", "startGeneration", "retry", "callTools", "callInteractiveTool", "callDelegate", "resolveToolResults", "attemptCompletion",
	"finishToolCall", "resumeToolCalls", "finishAllToolCalls", "continueToNextStep", "stopRunByInteractiveTool", "stopRunByDelegate",
	"stopRunByExceededMaxSteps", "stopRunByError", "completeRun"}

// bytesMade returns the size of all values, each counted once.
func (r *runtime) bytesMade() (n int) {
	for _, size := range r.distinct {
		n += size
	}
	return n
}
