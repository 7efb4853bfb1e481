// The expectations are from the description of the original, line by line, and not from
// what the code gives.
//
//   node --test oracle.test.mjs

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, readdirSync, realpathSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import test from "node:test";
import { fileURLToPath } from "node:url";
import { callsOf } from "./jobs.mjs";
import * as storage from "./storage.mjs";

const start = process.cwd();
const cli = fileURLToPath(new URL("cli.mjs", import.meta.url));

// inFolder is a test with a working directory of its own.
const inFolder = (name, fn) => test(name, async () => {
  const dir = realpathSync(mkdtempSync(path.join(tmpdir(), "oracle-")));
  process.chdir(dir);
  try {
    await fn(dir);
  } finally {
    process.chdir(start);
    rmSync(dir, { recursive: true });
  }
});

function put(file, text) {
  mkdirSync(path.dirname(file), { recursive: true });
  writeFileSync(file, typeof text === "string" ? text : JSON.stringify(text));
}

const bytes = (file) => readFileSync(file, "utf8");
const usage = { inputTokens: 1, outputTokens: 2, reasoningTokens: 3, totalTokens: 4, cachedInputTokens: 5 };
const job = (id, startedAt, more) => ({ id, status: "running", coordinatorExpertKey: "e", totalSteps: 0, usage, startedAt, ...more });
const expert = { key: "k", name: "n", version: "1" };
const checkpoint = (id, stepNumber, more) => ({ id, jobId: "j", runId: "r", status: "init", stepNumber, messages: [], expert, usage, ...more });
const setting = (more) => ({
  model: "m", providerConfig: { apiKey: "sk-1" }, jobId: "j", runId: "r", expertKey: "k", input: { text: "hi" }, experts: {},
  startedAt: 1, updatedAt: 2, perstackApiBaseUrl: "u", env: {}, ...more,
});

test("createInitialJob: running, nothing used, in its order of keys; maxSteps only if given", () => {
  const zero = '{"inputTokens":0,"outputTokens":0,"reasoningTokens":0,"totalTokens":0,"cachedInputTokens":0}';
  assert.equal(JSON.stringify(storage.createInitialJob("j", "e", 50, 7)),
    `{"id":"j","status":"running","coordinatorExpertKey":"e","totalSteps":0,"maxSteps":50,"usage":${zero},"startedAt":7}`);
  assert.equal(JSON.stringify(storage.createInitialJob("j", "e", undefined, 7)),
    `{"id":"j","status":"running","coordinatorExpertKey":"e","totalSteps":0,"usage":${zero},"startedAt":7}`);
});

inFolder("storeJob: makes folders, two spaces, no final newline, overwrites", async () => {
  await storage.storeJob({ id: "j", a: { b: [] } });
  assert.equal(bytes("perstack/jobs/j/job.json"), '{\n  "id": "j",\n  "a": {\n    "b": []\n  }\n}');
  await storage.storeJob({ id: "j" });
  assert.equal(bytes("perstack/jobs/j/job.json"), '{\n  "id": "j"\n}');
});

inFolder("retrieveJob: undefined if missing, throws if invalid, leaves unknown keys out, in the order of the schema", async () => {
  assert.equal(storage.retrieveJob("j"), undefined);
  mkdirSync("perstack/jobs/j", { recursive: true });
  assert.equal(storage.retrieveJob("j"), undefined, "a folder alone");
  const full = { finishedAt: 9, x: 1, ...job("j", 5, { maxSteps: 3, usage: { ...usage, x: 1 } }) };
  await storage.storeJob(full);
  assert.equal(JSON.stringify(storage.retrieveJob("j")),
    `{"id":"j","status":"running","coordinatorExpertKey":"e","totalSteps":0,"maxSteps":3,"usage":${JSON.stringify(usage)},"startedAt":5,"finishedAt":9}`);
  for (const status of ["running", "completed", "stoppedByMaxSteps", "stoppedByInteractiveTool", "stoppedByError"]) {
    await storage.storeJob(job("j", 5, { status }));
    assert.equal(storage.retrieveJob("j").status, status);
  }
  const { usage: _, ...without } = job("j", 5);
  const misfits = [job("j", "5"), job("j", 5, { status: "paused" }), job("j", 5, { maxSteps: "1" }), without, job(1, 5)];
  for (const bad of ["", "{", "null", "[]", ...misfits]) {
    put("perstack/jobs/j/job.json", bad);
    assert.throws(() => storage.retrieveJob("j"), JSON.stringify(bad));
  }
});

inFolder("getAllJobs: none without a root, invalid and missing ones skipped, newest first, stable", async () => {
  assert.deepEqual(storage.getAllJobs(), []);
  for (const [id, at] of [["b", 5], ["a", 5], ["c", 9], ["d", 1]]) {
    await storage.storeJob(job(id, at));
  }
  put("perstack/jobs/bad/job.json", "{");
  put("perstack/jobs/none/notes.txt", "");
  put("perstack/jobs/file.json", job("file", 99));
  assert.deepEqual(storage.getAllJobs().map((j) => j.id), ["c", "a", "b", "d"]);
});

inFolder("paths: strings from the working directory when they are asked for, ids as they are", (dir) => {
  const all = () => [storage.getJobsDir(), storage.getJobDir("a/../ é"), storage.getCheckpointDir(""),
    storage.getCheckpointPath("j", "../c"), storage.defaultGetRunDir("j", "r")];
  const want = (at) => ["", "/a/../ é", "//checkpoints", "/j/checkpoints/../c.json", "/j/runs/r"].map((rest) => `${at}/perstack/jobs${rest}`);
  assert.deepEqual(all(), want(dir));
  mkdirSync("other");
  process.chdir("other");
  assert.deepEqual(all(), want(`${dir}/other`));
  assert.deepEqual(readdirSync("."), [], "asking makes nothing");
});

inFolder("checkpoints: stored compactly by id; read back, or not found, or invalid", async () => {
  await assert.rejects(storage.defaultRetrieveCheckpoint("j", "c 1"), { message: "checkpoint not found: c 1" });
  await storage.defaultStoreCheckpoint(checkpoint("c", 1));
  await storage.defaultStoreCheckpoint(checkpoint("c", 2));
  assert.deepEqual(readdirSync("perstack/jobs/j/checkpoints"), ["c.json"]);
  assert.equal(bytes("perstack/jobs/j/checkpoints/c.json"), JSON.stringify(checkpoint("c", 2)));
  const metadata = { runtime: "docker", own: { deep: [1] } };
  await storage.defaultStoreCheckpoint({ ...checkpoint("c", 2, { metadata, expert: { ...expert, x: 1 } }), x: 1 });
  assert.deepEqual(await storage.defaultRetrieveCheckpoint("j", "c"), checkpoint("c", 2, { metadata }));
  const misfits = [{ status: "running" }, { metadata: { runtime: "vax" } }, { metadata: [] }, { messages: [{}] }, { stepNumber: "1" },
    { error: { name: "n", message: "m" } }, { delegateTo: {} }];
  for (const bad of misfits) {
    await storage.defaultStoreCheckpoint(checkpoint("c", 2, bad));
    await assert.rejects(storage.defaultRetrieveCheckpoint("j", "c"), /is not/, JSON.stringify(bad));
  }
});

inFolder("a checkpoint keeps all members that it may have, and every kind of message and part", async () => {
  const one = (type, more) => ({ type, id: type, ...more });
  const text = one("textPart", { text: "t" });
  const [url, inline, binary] = [{ url: "u", mimeType: "m" }, { encodedData: "e", mimeType: "m" }, { data: "d", mimeType: "m" }];
  const media = ["image", "file"].flatMap((kind) => [one(`${kind}UrlPart`, url), one(`${kind}InlinePart`, inline), one(`${kind}BinaryPart`, binary)]);
  const expertParts = [text, one("toolCallPart", { toolCallId: "i", toolName: "t", args: { a: 1 } }),
    one("thinkingPart", { thinking: "h", signature: "s" }), one("thinkingPart", { thinking: "h" })];
  const call = { id: "i".repeat(255), skillName: "s", toolName: "t", args: { any: { thing: 1 } } };
  const full = checkpoint("c", 2, {
    messages: [
      one("instructionMessage", { contents: [text], cache: true }),
      one("userMessage", { contents: [text, ...media] }),
      one("expertMessage", { contents: expertParts }),
      one("toolMessage", { contents: [one("toolResultPart", { toolCallId: "i", toolName: "t", contents: [text], isError: true })] }),
    ],
    delegateTo: [{ expert, toolCallId: "i", toolName: "t", query: "q" }],
    delegatedBy: { expert, toolCallId: "i", toolName: "t", checkpointId: "c", runId: "r" },
    contextWindow: 100, contextWindowUsage: 0.5, pendingToolCalls: [call],
    partialToolResults: [{ id: "i", skillName: "s", toolName: "t", result: [text, ...media] }],
    metadata: { open: true }, error: { name: "n", message: "m", statusCode: 500, isRetryable: false }, retryCount: 0,
  });
  await storage.defaultStoreCheckpoint(full);
  assert.deepEqual(await storage.defaultRetrieveCheckpoint("j", "c"), full);
  for (const id of ["", "i".repeat(256)]) {
    await storage.defaultStoreCheckpoint({ ...full, pendingToolCalls: [{ ...call, id }] });
    await assert.rejects(storage.defaultRetrieveCheckpoint("j", "c"), /1 to 255/);
  }
  await storage.defaultStoreCheckpoint({ ...full, messages: [one("instructionMessage", { contents: media })] });
  await assert.rejects(storage.defaultRetrieveCheckpoint("j", "c"), /is not known/);
});

inFolder("getCheckpointsByJobId: none, or by step, those of a step in the order of the folder, without invalid ones", async () => {
  assert.deepEqual(storage.getCheckpointsByJobId("j"), []);
  const statuses = ["init", "proceeding", "completed", "stoppedByInteractiveTool", "stoppedByDelegate", "stoppedByExceededMaxSteps", "stoppedByError"];
  for (const [i, status] of statuses.entries()) {
    await storage.defaultStoreCheckpoint(checkpoint("gfedcba"[i], [10, 9, 9, 2, 2, 2, 1][i], { status }));
  }
  put("perstack/jobs/j/checkpoints/bad.json", checkpoint("bad", 1, { status: "none" }));
  put("perstack/jobs/j/checkpoints/cut.json", "{");
  put("perstack/jobs/j/checkpoints/notes.txt", "x");
  const found = storage.getCheckpointsByJobId("j");
  assert.deepEqual(found.map((c) => c.id), ["a", "b", "c", "d", "e", "f", "g"]);
  assert.deepEqual(found.map((c) => c.status).sort(), [...statuses].sort());
});

inFolder("defaultStoreEvent: a compact file named by time, step and type, which the same name overwrites", async () => {
  const event = { type: "callTools", timestamp: 1760000000000, stepNumber: 3, jobId: "j", runId: "r", n: 1 };
  await storage.defaultStoreEvent(event);
  await storage.defaultStoreEvent({ ...event, n: 2 });
  assert.deepEqual(readdirSync("perstack/jobs/j/runs/r"), ["event-1760000000000-3-callTools.json"]);
  assert.equal(bytes("perstack/jobs/j/runs/r/event-1760000000000-3-callTools.json"), JSON.stringify({ ...event, n: 2 }));
});

inFolder("getEventsByRun: by step, those of a step by time; the module and the class read names in their own way", () => {
  assert.deepEqual(storage.getEventsByRun("j", "r"), []);
  const events = ["event-1000-10-a.json", "event-2000-9-b.json", "event-1000-9-b-c.json", "event-x-1-d.json"];
  for (const name of [...events, "events-1-1-e.json", "other.json", "checkpoint-1-1-x.json", "run-setting.json"]) {
    put(`perstack/jobs/j/runs/r/${name}`, "no JSON, which does not matter here");
  }
  const row = (timestamp, stepNumber, type) => ({ timestamp, stepNumber, type });
  const [first, module, rest] = [row(NaN, 1, "d"), row(1000, 9, "b"), [row(2000, 9, "b"), row(1000, 10, "a")]];
  assert.deepEqual(storage.getEventsByRun("j", "r"), [first, module, ...rest]);
  assert.deepEqual(storage.getEventsByRun("j", "r", "module"), [first, module, ...rest]);
  assert.deepEqual(storage.getEventsByRun("j", "r", "class"), [row(1000, 9, "b-c"), ...rest]);
  put("perstack/jobs/j/runs/s/event-1-x-y.z.json", "");
  assert.deepEqual(storage.getEventsByRun("j", "s", "module"), [row(1, NaN, "y")], "the text before the first dot");
  assert.deepEqual(storage.getEventsByRun("j", "s", "class"), []);
});

inFolder("getEventContents: by time, up to a step and with it, unparsable ones skipped, of any shape", () => {
  assert.deepEqual(storage.getEventContents("j", "r"), []);
  const events = [[3000, 1, "a"], [1000, 2, "b"], [2000, 3, "c"], [2000, 2, "z"], [2000, 2, "y"]];
  for (const [timestamp, stepNumber, type] of events) {
    put(`perstack/jobs/j/runs/r/event-${timestamp}-${stepNumber}-${type}.json`, { timestamp, stepNumber, type });
  }
  put("perstack/jobs/j/runs/r/event-1500-1-cut.json", '{"type":');
  put("perstack/jobs/j/runs/r/event-4000-1-anything.json", { type: "anything", any: ["thing"] });
  put("perstack/jobs/j/runs/r/run-setting.json", {});
  const types = (max) => storage.getEventContents("j", "r", max).map((e) => e.type).join(" ");
  assert.equal(types(), "b y z c a anything");
  assert.equal(types(2), "b y z a anything");
  assert.equal(types(1), "a anything");
  assert.equal(types(0), "");
  assert.deepEqual(storage.getEventContents("j", "r", 1)[1], { type: "anything", any: ["thing"] });
});

inFolder("storeRunSetting: the first stays, later ones move updatedAt", async () => {
  const file = "perstack/jobs/j/runs/r/run-setting.json";
  const first = setting({ x: 1 });
  await storage.storeRunSetting(first, undefined, undefined, 50);
  assert.equal(bytes(file), JSON.stringify(first), "as it was given");
  await storage.storeRunSetting(setting({ model: "another", updatedAt: 3 }), undefined, undefined, 60);
  const { x, ...rest } = first;
  assert.deepEqual(JSON.parse(bytes(file)), { ...rest, updatedAt: 60, reasoningBudget: "low", maxSteps: 100, maxRetries: 5, timeout: 300000 });
  assert.equal(bytes(file), JSON.stringify(JSON.parse(bytes(file))), "compact");
  put(file, "{");
  await assert.rejects(storage.storeRunSetting(first), SyntaxError);
});

inFolder("storeRunSetting after an event: the module throws, the class stores", async () => {
  await storage.defaultStoreEvent({ type: "startRun", timestamp: 1, stepNumber: 1, jobId: "j", runId: "r" });
  await assert.rejects(storage.storeRunSetting(setting()), { code: "ENOENT" });
  await storage.storeRunSetting(setting(), undefined, undefined, 60, "class");
  assert.equal(bytes("perstack/jobs/j/runs/r/run-setting.json"), JSON.stringify(setting()));
});

inFolder("storeRunSetting takes another file system and another folder", async () => {
  const files = new Map();
  const fs = {
    exists: (name) => files.has(name), mkdir: (name) => files.set(name, "a folder"),
    readFile: (name) => files.get(name), writeFile: (name, text) => files.set(name, text),
  };
  const dir = (jobId, runId) => `/x/${jobId}-${runId}`;
  await storage.storeRunSetting(setting(), fs, dir, 5);
  await storage.storeRunSetting(setting(), fs, dir, 6);
  assert.deepEqual([...files.keys()], ["/x/j-r", "/x/j-r/run-setting.json"]);
  assert.equal(JSON.parse(files.get("/x/j-r/run-setting.json")).updatedAt, 6);
  assert.deepEqual(readdirSync("."), []);
});

inFolder("getAllRuns: those of all jobs, newest update first, invalid ones skipped", () => {
  assert.deepEqual(storage.getAllRuns(), []);
  put("perstack/jobs/a/runs/1/run-setting.json", setting({ jobId: "a", updatedAt: 5, x: 1 }));
  put("perstack/jobs/a/runs/2/run-setting.json", setting({ jobId: "a", updatedAt: 9, reasoningBudget: 2048, maxSteps: 1, maxRetries: 2, timeout: 3 }));
  put("perstack/jobs/b/runs/1/run-setting.json", setting({ jobId: "b", updatedAt: 7 }));
  put("perstack/jobs/b/runs/2/run-setting.json", setting({ jobId: "b", updatedAt: "8" }));
  put("perstack/jobs/b/runs/3/event-1-1-a.json", "{}");
  put("perstack/jobs/b/notes.txt", "");
  const filled = { reasoningBudget: "low", maxSteps: 100, maxRetries: 5, timeout: 300000 };
  assert.deepEqual(storage.getAllRuns(), [
    setting({ jobId: "a", updatedAt: 9, reasoningBudget: 2048, maxSteps: 1, maxRetries: 2, timeout: 3 }),
    setting({ jobId: "b", updatedAt: 7, ...filled }), setting({ jobId: "a", updatedAt: 5, ...filled }),
  ]);
});

// run runs the program, and returns what it prints as a list of JSON values.
function run(input, ...args) {
  const done = spawnSync(process.execPath, [cli, ...args], { input, encoding: "utf8", maxBuffer: 1 << 28 });
  assert.equal(done.status, 0, done.stderr);
  return done.stdout.trim().split("\n").map((line) => JSON.parse(line));
}

test("the calls have every event type and status, and every file a name of its own unless events collide", () => {
  const calls = callsOf(1, 14);
  const of = (name, member) => new Set(calls.filter((c) => c.call === name).map((c) => c.args[0][member]));
  const states = ["startRun", "startGeneration", "retry", "callTools", "callInteractiveTool", "callDelegate", "resolveToolResults", "attemptCompletion",
    "finishToolCall", "resumeToolCalls", "finishAllToolCalls", "continueToNextStep", "stopRunByInteractiveTool", "stopRunByDelegate",
    "stopRunByExceededMaxSteps", "stopRunByError", "completeRun"];
  assert.deepEqual(states.filter((type) => !of("defaultStoreEvent", "type").has(type)), []);
  assert.equal(of("storeJob", "status").size, 5);
  assert.equal(of("defaultStoreCheckpoint", "status").size, 7);
  const named = (options) => {
    const events = callsOf(1, 14, options).filter((c) => c.call === "defaultStoreEvent").map((c) => c.args[0]);
    return events.length - new Set(events.map((e) => [e.runId, e.timestamp, e.stepNumber, e.type].join())).size;
  };
  assert.equal(named({}), 0);
  assert.ok(named({ collide: true }) > 0);
});

inFolder("what is written is read again whole; other styles change nothing, damage hides what it hits", () => {
  const calls = run("", "calls", "7", "14");
  assert.deepEqual(new Set(run(calls.map((c) => JSON.stringify(c)).join("\n"), "write", "plain").map((r) => JSON.stringify(r))), new Set(["{}"]));
  const [made] = run("", "generate", "7", "14", "odd");
  const [plain] = run("", "read", "plain");
  const [odd] = run("", "read", "odd");

  const last = new Map(calls.filter((c) => c.call === "defaultStoreCheckpoint").map((c) => [c.args[0].id, c.args[0]]));
  const of = (all) => new Map(all.jobs.flatMap((j) => j.checkpoints.map((c) => [c.checkpointId, c.defaultRetrieveCheckpoint])));
  assert.deepEqual(of(plain), new Map([...of(plain).keys()].map((id) => [id, { value: last.get(id) }])));
  assert.equal(of(plain).size, last.size);

  const kept = [...of(odd)].filter(([, result]) => result.value);
  kept.forEach(([id, result]) => assert.deepEqual(result, of(plain).get(id)));
  const count = (kind, names) => names.reduce((n, name) => n + (made[`${kind}: ${name}`] ?? 0), 0);
  const damage = ["empty", "cut short", "no JSON", "after a byte order mark", "with more behind it",
    "a list", "null", "without an id", "usage that is no number", "of an unknown status"];
  assert.ok(count("checkpoint", damage) >= 5);
  const stored = calls.filter((c) => c.call === "storeJob").map((c) => c.args[0].id);
  assert.equal(odd.getAllJobs.value.length, new Set(stored).size - count("job.json", damage));
  assert.equal(odd.getAllRuns.value.length, plain.getAllRuns.value.length - count("run-setting.json", damage));
});

inFolder("write gives each call its result, with the time and the folder that it asks for", () => {
  const calls = [
    { call: "createInitialJob", args: ["j", "e"], now: 7 },
    { call: "retrieveJob", args: ["j"] },
    { call: "defaultRetrieveCheckpoint", args: ["j", "c"] },
    { call: "storeRunSetting", args: [setting()], now: 5, runDir: "there/{runId}" },
    { call: "storeRunSetting", args: [setting()], now: 6, runDir: "there/{runId}" },
    { call: "getEventsByRun", args: ["j", "r"], rule: "class" },
  ];
  const results = run(calls.map((c) => JSON.stringify(c) + "\n").join(""), "write", "dir");
  assert.equal(results[0].value.startedAt, 7);
  assert.deepEqual(results.slice(1), [{}, { error: { kind: "not-found", message: "checkpoint not found: c" } }, {}, {}, { value: [] }]);
  assert.equal(JSON.parse(bytes("dir/there/r/run-setting.json")).updatedAt, 6);
});

inFolder("what the description leaves open can be generated and read too, and a seed makes the same again", () => {
  const [made] = run("", "generate", "3", "3", "a", "--unclear");
  assert.deepEqual(run("", "generate", "3", "3", "b", "--unclear"), [made]);
  const [read] = run("", "read", "a");
  assert.deepEqual(run("", "read", "b"), [read]);
  assert.equal(read.jobs.length, 4, "with the empty one; a link is no folder");
});

test("wrong arguments are an error of use", () => {
  for (const args of [[], ["red", "x"], ["read"], ["read", "a", "b"], ["generate", "x", "1", "d"], ["calls", "1", "2", "--odd"], ["constructor"]]) {
    assert.equal(spawnSync(process.execPath, [cli, ...args], { encoding: "utf8" }).status, 2, args.join(" "));
  }
});
