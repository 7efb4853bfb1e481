// The calls of a runtime that works on jobs: runs with steps, tools, delegation to one
// expert or to several at once, and every way to end.

import { createInitialJob } from "./storage.mjs";
import { Random } from "./random.mjs";

const zero = { inputTokens: 0, outputTokens: 0, reasoningTokens: 0, totalTokens: 0, cachedInputTokens: 0 };

const sum = (a, b, sign = 1) => Object.fromEntries(Object.keys(zero).map((k) => [k, a[k] + sign * b[k]]));

// endings are the event, the checkpoint's status and the job's status of each way to end.
const endings = {
  completed: ["completeRun", "completed", "completed"],
  interactive: ["stopRunByInteractiveTool", "stoppedByInteractiveTool", "stoppedByInteractiveTool"],
  delegate: ["stopRunByDelegate", "stoppedByDelegate", "running"],
  maxSteps: ["stopRunByExceededMaxSteps", "stoppedByExceededMaxSteps", "stoppedByMaxSteps"],
  error: ["stopRunByError", "stoppedByError", "stoppedByError"],
  running: [undefined, "proceeding", "running"],
};

// scenarios are the ways that jobs go; the jobs take them in turns.
const scenarios = [["completed"], ["delegate", 1], ["delegate", 3], ["interactive", "completed"], ["maxSteps"], ["error", "completed"], ["running"]];

class Job {
  constructor(index, random, options) {
    this.random = random;
    this.options = options;
    this.now = 1760000000000 + (index >> 1) * 10000000; // two start at once
    this.names = new Set();
    this.id = index % 5 === 4 ? `${random.pick(["Grüße 旅", "my job", "2026.01", "-"])} ${index}` : random.id();
    this.stored = !random.chance(0.2);
    this.calls = [];
    this.expert = this.newExpert("coordinator");
    this.job = this.initial(random.chance(0.5) ? undefined : 50);
  }

  // initial has the order of keys of createInitialJob, or that of the runtime's own factory.
  initial(maxSteps) {
    const job = createInitialJob(this.id, this.expert.key, maxSteps, this.now);
    if (this.random.chance(0.5)) {
      return job;
    }
    const { id, coordinatorExpertKey, status, totalSteps, startedAt, usage } = job;
    return { id, coordinatorExpertKey, status, totalSteps, startedAt, maxSteps, usage };
  }

  call(call, args, more = {}) {
    this.calls.push(structuredClone({ call, args, ...more }));
  }

  tick() {
    this.now += this.random.pick([0, 0, 0, 1, 7, 450]);
    return this.now;
  }

  newExpert(name) {
    return { key: `@perstack/${name}`, name, version: `1.0.${this.random.int(0, 9)}` };
  }

  store(changes) {
    this.job = { ...this.job, ...changes };
    if (this.stored) {
      this.call("storeJob", [this.job]);
    }
  }

  // emit stores an event, at a time that gives its file a name of its own.
  emit(run, type, payload) {
    this.tick();
    const name = () => `${run.id} ${this.now} ${run.cp.stepNumber} ${type}`;
    while (this.names.has(name()) && !this.options.collide) {
      this.now++;
    }
    this.names.add(name());
    const base = { type, id: this.random.id(), expertKey: run.expert.key, timestamp: this.now, jobId: this.id, runId: run.id, stepNumber: run.cp.stepNumber };
    this.call("defaultStoreEvent", [{ ...base, ...payload }]);
  }

  usage() {
    const [inputTokens, outputTokens, reasoningTokens] = [this.random.int(1, 9000), this.random.int(1, 900), this.random.int(0, 90)];
    return { inputTokens, outputTokens, reasoningTokens, totalTokens: inputTokens + outputTokens, cachedInputTokens: this.random.int(0, 500) };
  }

  part(type, more) {
    return { type, id: this.random.id(), ...more };
  }

  textPart() {
    return this.part("textPart", { text: this.random.text() });
  }

  mediaPart() {
    const kind = this.random.pick(["image", "file"]);
    const mimeType = kind === "image" ? "image/png" : "application/pdf";
    return this.random.pick([
      this.part(`${kind}UrlPart`, { url: "https://example.com/a?b=1&c=2", mimeType }),
      this.part(`${kind}InlinePart`, { encodedData: "aGVsbG8=", mimeType }),
      this.part(`${kind}BinaryPart`, { data: "hello", mimeType }),
    ]);
  }

  message(type, contents) {
    return { type, id: this.random.id(), contents, ...(this.random.chance(0.2) && { cache: true }) };
  }

  userMessage() {
    return this.message("userMessage", [this.textPart(), ...(this.random.chance(0.3) ? [this.mediaPart()] : [])]);
  }

  toolCall(toolName) {
    const args = { query: this.random.text(), n: this.random.pick([0.1, -2.5, 1e21, 1e-7, 42]), 10: true, 9: null };
    return { id: this.random.id(), skillName: "@perstack/base", toolName, args };
  }

  toolResult(call) {
    return { id: call.id, skillName: call.skillName, toolName: call.toolName, result: [this.random.chance(0.8) ? this.textPart() : this.mediaPart()] };
  }

  expertMessage(calls) {
    const thinking = this.random.chance(0.3) ? [this.part("thinkingPart", { thinking: this.random.text(), signature: "sig" })] : [];
    return this.message("expertMessage", [...thinking, this.textPart(),
      ...calls.map((c) => this.part("toolCallPart", { toolCallId: c.id, toolName: c.toolName, args: c.args }))]);
  }

  toolMessage(results) {
    return this.message("toolMessage", results.map((r) =>
      this.part("toolResultPart", { toolCallId: r.id, toolName: r.toolName, contents: r.result, ...(this.random.chance(0.2) && { isError: true }) })));
  }

  // checkpoint stores the checkpoint of the next step, or of the same with another status.
  checkpoint(run, changes) {
    const runtime = this.random.pick(["local", "cursor", "claude-code", "gemini", "docker"]);
    const odd = this.random.chance(0.3) ? { metadata: { runtime, "ключ": { 2: [], 1: {} } } } : {};
    const window = this.random.chance(0.5) ? { contextWindow: 200000, contextWindowUsage: this.random.int(0, 1000) / 1000 } : {};
    run.cp = { ...run.cp, ...window, ...odd, ...changes, id: this.random.id() };
    this.call("defaultStoreCheckpoint", [run.cp]);
    return run.cp;
  }

  begin(expert, more) {
    const messages = [this.message("instructionMessage", [this.textPart()])];
    const run = { id: this.random.id(), expert, cp: undefined };
    run.cp = { jobId: this.id, runId: run.id, status: "init", stepNumber: 1, messages, expert, usage: zero, ...more };
    run.cp = { id: "", ...run.cp };
    this.setting(run);
    this.checkpoint(run, {});
    const inputMessages = [this.userMessage()];
    this.emit(run, "startRun", { initialCheckpoint: run.cp, inputMessages });
    run.cp = { ...run.cp, messages: [...messages, ...inputMessages] };
    return run;
  }

  // resume goes on from a checkpoint: after delegation under a new run id, else under the same.
  resume(before, changes) {
    const run = before.cp.delegateTo ? { id: this.random.id(), expert: before.expert, cp: before.cp } : { ...before };
    if (run.id === before.id) {
      this.again(run);
    } else {
      this.setting(run);
    }
    this.checkpoint(run, { runId: run.id, status: "proceeding", delegateTo: undefined, stepNumber: before.cp.stepNumber + 1, ...changes });
    this.emit(run, "startRun", { initialCheckpoint: run.cp, inputMessages: [] });
    if (changes.pendingToolCalls) {
      const { pendingToolCalls, partialToolResults } = changes;
      this.emit(run, "resumeToolCalls", { pendingToolCalls, partialToolResults });
      this.emit(run, "finishAllToolCalls", { newMessages: [this.toolMessage(partialToolResults)] });
      run.cp = { ...run.cp, pendingToolCalls: undefined, partialToolResults: undefined };
    }
    return run;
  }

  // unused is a time that no setting of any job has.
  unused() {
    while (this.options.times.has(this.now)) {
      this.now++;
    }
    this.options.times.add(this.now);
    return this.now;
  }

  setting(run) {
    run.hasSetting = this.random.chance(0.7);
    if (!run.hasSetting) {
      return;
    }
    const at = this.unused();
    const key = `sk-${this.random.id()}`;
    const skills = { base: { type: "mcpStdioSkill", env: { TOKEN: key } } };
    const expert = (e) => ({ ...e, instruction: this.random.text(), skills, delegates: [], tags: ["a"] });
    run.setting = {
      model: "claude", providerConfig: { providerName: "anthropic", apiKey: key }, jobId: this.id, runId: run.id, expertKey: run.expert.key,
      input: { text: this.random.text() }, experts: { [run.expert.key]: expert(run.expert) },
      ...(this.random.chance(0.5) && { reasoningBudget: this.random.pick(["none", "high", 2048]), maxSteps: 7, maxRetries: 1, timeout: 1000, verbose: true }),
      startedAt: at, updatedAt: at, perstackApiBaseUrl: "https://api.example.com", env: { HOME: "/srv/a", KEY: key },
      ...(this.random.chance(0.3) && { perstackApiKey: key, proxyUrl: "http://u:p@proxy.example.com", perstackBaseSkillCommand: ["npx", "-y", "base"] }),
    };
    this.call("storeRunSetting", [run.setting], { now: at, rule: this.random.pick(["module", "class"]) });
  }

  // again stores another setting of a run, of which only the time counts.
  again(run) {
    if (run.hasSetting) {
      this.tick();
      const now = this.unused();
      this.call("storeRunSetting", [{ ...run.setting, model: "another", updatedAt: 1 }], { now, rule: "class" });
    }
  }

  generation(run, toolNames) {
    this.emit(run, "startGeneration", { messages: run.cp.messages });
    if (this.random.chance(0.3)) {
      this.emit(run, "startStreamingReasoning", {});
      if (this.options.unclear) {
        this.emit(run, "streamReasoning", { delta: "a" });
      }
      this.emit(run, "completeStreamingReasoning", { text: this.random.text() });
    }
    if (this.random.chance(0.2)) {
      this.emit(run, "retry", { reason: this.random.text(), newMessages: [this.userMessage()], usage: this.usage() });
    }
    const toolCalls = toolNames.map((name) => this.toolCall(name));
    run.spent = this.usage();
    run.startedAt = this.now;
    return { toolCalls, newMessage: this.expertMessage(toolCalls), usage: run.spent };
  }

  step(run) {
    const { toolCalls, newMessage, usage } = this.generation(run, this.random.chance(0.4) ? ["search", "readFile"] : ["think"]);
    this.emit(run, "callTools", { newMessage, toolCalls, usage });
    const toolResults = toolCalls.map((c) => this.toolResult(c));
    this.emit(run, "resolveToolResults", { toolResults });
    const answer = this.toolMessage(toolResults);
    toolCalls.forEach(() => this.emit(run, "finishToolCall", { newMessages: [answer] }));
    this.emit(run, "finishAllToolCalls", { newMessages: [answer] });
    if (this.random.chance(0.1)) {
      this.emit(run, "somethingOfTheFuture", { "new": this.random.text() });
    }
    const before = { ...run.cp, usage: sum(run.cp.usage, usage), messages: [...run.cp.messages, newMessage, answer] };
    const step = this.stepOf(run, [newMessage, answer], { toolCalls, toolResults });
    run.cp = before;
    const next = { ...before, id: this.random.id(), status: "proceeding", stepNumber: before.stepNumber + 1 };
    this.emit(run, "continueToNextStep", { checkpoint: before, step, nextCheckpoint: next });
    run.cp = next;
    this.call("defaultStoreCheckpoint", [next]);
  }

  stepOf(run, newMessages, more) {
    return { stepNumber: run.cp.stepNumber, newMessages, ...more, usage: run.spent ?? zero, startedAt: run.startedAt ?? this.now, finishedAt: this.now };
  }

  // end takes a run to its end; children are the experts that it delegates to.
  end(run, how, children = []) {
    const [type, status] = endings[how];
    if (how === "running") {
      return;
    }
    const { toolCalls, newMessage, usage } = this.generation(run, how === "delegate" ? children.map((e) => e.name) : ["askUser"]);
    const changes = { status, usage: sum(run.cp.usage, usage), messages: [...run.cp.messages, newMessage] };
    const payload = {};
    if (how === "delegate") {
      this.emit(run, "callDelegate", { newMessage, toolCalls, usage });
      changes.delegateTo = toolCalls.map((c, i) => ({ expert: children[i], toolCallId: c.id, toolName: c.toolName, query: this.random.text() }));
    } else if (how === "interactive") {
      this.emit(run, "callInteractiveTool", { newMessage, toolCall: toolCalls[0], usage });
      changes.pendingToolCalls = toolCalls;
      changes.partialToolResults = [];
    } else if (how === "completed") {
      this.emit(run, "attemptCompletion", { toolResult: this.toolResult(toolCalls[0]) });
      this.emit(run, "startStreamingRunResult", {});
      this.emit(run, "completeStreamingRunResult", { text: "done" });
      Object.assign(payload, { text: this.random.text(), usage });
    } else if (how === "error") {
      changes.error = { name: "APIError", message: this.random.text(), statusCode: 529, isRetryable: true };
      changes.retryCount = 2;
      payload.error = changes.error;
    }
    const step = this.stepOf(run, [newMessage], { toolCalls });
    this.emit(run, type, { checkpoint: this.checkpoint(run, changes), step, ...payload });
    this.again(run);
  }

  // finish takes the totals of a run over to the job.
  finish(run, how) {
    const status = endings[how][2];
    this.store({ status, totalSteps: run.cp.stepNumber, usage: run.cp.usage, ...(status !== "running" && { finishedAt: this.now }) });
  }

  steps(run) {
    for (let n = this.random.int(0, 3); n > 0; n--) {
      this.step(run);
    }
  }

  // delegate runs children at once, and returns what they did, which began at one time.
  delegate(run) {
    const { delegateTo, id, usage } = run.cp;
    const [calls, start] = [this.calls, this.now];
    let end = start;
    const done = delegateTo.map(({ expert, toolCallId, toolName }) => {
      [this.calls, this.now] = [[], start];
      const child = this.begin(expert, { usage, delegatedBy: { expert: run.expert, toolCallId, toolName, checkpointId: id, runId: run.id } });
      this.steps(child);
      this.end(child, "completed");
      end = Math.max(end, this.now);
      return { child, calls: this.calls };
    });
    [this.calls, this.now] = [calls, end];
    const queues = done.map((d) => d.calls);
    while (queues.some((q) => q.length)) {
      this.calls.push(this.random.pick(queues.filter((q) => q.length)).shift());
    }
    return done.map((d) => d.child);
  }

  play([first, then]) {
    this.store({});
    const run = this.begin(this.expert, {});
    this.steps(run);
    this.end(run, first, Array.from({ length: then }, (_, i) => this.newExpert(`helper-${i}`)));
    this.finish(run, first);
    if (first === "delegate") {
      const children = this.delegate(run);
      const usage = children.reduce((all, c) => sum(all, sum(c.cp.usage, run.cp.usage, -1)), run.cp.usage);
      const results = run.cp.delegateTo.map((d) => this.toolResult({ id: d.toolCallId, skillName: "delegate", toolName: d.toolName }));
      const stepNumber = Math.max(run.cp.stepNumber, ...children.map((c) => c.cp.stepNumber)) + 1;
      this.goOn(run, { usage, stepNumber, pendingToolCalls: [], partialToolResults: results });
    } else if (then) {
      const answered = () => ({ pendingToolCalls: [], partialToolResults: [this.toolResult(run.cp.pendingToolCalls[0])] });
      this.goOn(run, first === "interactive" ? answered() : { error: undefined });
    }
    return this.calls;
  }

  goOn(before, changes) {
    this.store({ status: "running", finishedAt: undefined });
    const run = this.resume(before, changes);
    this.steps(run);
    this.end(run, "completed");
    this.finish(run, "completed");
  }
}

// callsOf are the calls that write n jobs. No two settings have the same time, and without
// collide each event has a file of its own.
export function callsOf(seed, n, options = {}) {
  const random = new Random(seed);
  const times = new Set();
  return Array.from({ length: n }, (_, i) => new Job(i, random, { times, ...options }).play(scenarios[i % scenarios.length])).flat();
}
