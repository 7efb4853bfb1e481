// How many events a second are written as files:
//
//   node bench.mjs DIR RUNS EVENTS [--sync]
//
// RUNS runs of a job write EVENTS events each, one after the other, all runs at once. They
// are written as the original does, without any sync; with --sync each is written beside
// its place, synced, renamed, and its folder is synced too. Prints one JSON object, in
// which events are those of all runs.
// UV_THREADPOOL_SIZE, in the environment, is how many files Node writes at once.

import { mkdirSync } from "node:fs";
import { mkdir, open, rename } from "node:fs/promises";
import { performance } from "node:perf_hooks";
import { defaultGetRunDir, defaultStoreEvent } from "./storage.mjs";

const start = 1760000000000;

// eventOf is an event of about 1,000 bytes; no two of a run have the same file.
function eventOf(runId, n) {
  const usage = { inputTokens: 4096, outputTokens: 256, reasoningTokens: 0, totalTokens: 4352, cachedInputTokens: 1024 };
  const call = { id: `call-${n}`, skillName: "@perstack/base", toolName: "readTextFile", args: { path: "src/main.go" } };
  const contents = [
    { type: "textPart", id: `text-${n}`, text: "0123456789abcdef".repeat(24) },
    { type: "toolCallPart", id: `part-${n}`, toolCallId: call.id, toolName: call.toolName, args: call.args },
  ];
  return {
    type: "callTools", id: `event-${runId}-${n}`, expertKey: "@perstack/coordinator", timestamp: start + n, jobId: "bench", runId,
    stepNumber: 1 + (n >> 3), newMessage: { type: "expertMessage", id: `message-${n}`, contents }, toolCalls: [call], usage,
  };
}

async function synced(path, flags, use = () => {}) {
  const file = await open(path, flags);
  try {
    await use(file);
    await file.sync();
  } finally {
    await file.close();
  }
}

async function storeSynced(event) {
  const dir = defaultGetRunDir(event.jobId, event.runId);
  const file = `${dir}/event-${event.timestamp}-${event.stepNumber}-${event.type}.json`;
  await mkdir(dir, { recursive: true });
  await synced(`${file}.tmp`, "wx", (f) => f.writeFile(JSON.stringify(event)));
  await rename(`${file}.tmp`, file);
  await synced(dir, "r");
}

async function writeRun(runId, count, store) {
  for (let n = 0; n < count; n++) {
    await store(eventOf(runId, n));
  }
}

const sync = process.argv.includes("--sync");
const [dir, runs, events] = process.argv.slice(2).filter((a) => a !== "--sync");
if (![runs, events].every((n) => /^[1-9]\d*$/.test(n ?? ""))) {
  console.error("usage: node bench.mjs DIR RUNS EVENTS [--sync]");
  process.exit(2);
}
mkdirSync(dir, { recursive: true });
process.chdir(dir);
const before = performance.now();
await Promise.all(Array.from({ length: Number(runs) }, (_, i) => writeRun(`run-${i}`, Number(events), sync ? storeSynced : defaultStoreEvent)));
const seconds = (performance.now() - before) / 1000;
const total = runs * events;
console.log(JSON.stringify({
  runs: Number(runs), events: total, sync, threads: Number(process.env.UV_THREADPOOL_SIZE ?? 4),
  bytesPerEvent: JSON.stringify(eventOf("run-0", 0)).length, seconds, eventsPerSecond: total / seconds,
}));
