// What the functions of @perstack/storage do, for programs in another language:
//
//   node cli.mjs read DIR                            what every reading function gives, as one JSON document
//   node cli.mjs write DIR < calls.jsonl             does the calls, and prints the result of each as a line
//   node cli.mjs calls SEED N [--unclear] [--collide]   prints the calls that write N jobs
//   node cli.mjs generate SEED N DIR [--unclear]     writes N jobs with all that is odd; prints a count of it
//
// DIR is the working directory of the original: the jobs are in DIR/perstack/jobs.
//
// A call is {"call": NAME, "args": [...], "now": ms, "rule": "module" or "class",
// "runDir": a folder with {jobId} and {runId} in it, below DIR}; all but the name may be
// left out. A result is {"value": V}, {} for undefined, or {"error": {"kind", "message"}}
// with the kind "not-found" (a checkpoint), "missing" (a file), "json", "schema" or "io".
//
// --unclear adds what the description of the original does not decide, --collide events
// whose files have the same name.

import { mkdirSync, readFileSync } from "node:fs";
import { generate } from "./generate.mjs";
import { callsOf } from "./jobs.mjs";
import { SchemaError } from "./schema.mjs";
import * as storage from "./storage.mjs";

const kindOf = (err) =>
  err instanceof storage.NotFound ? "not-found"
  : err instanceof SchemaError ? "schema"
  : err instanceof SyntaxError ? "json"
  : err.code === "ENOENT" ? "missing"
  : err.code ? "io"
  : undefined;

async function resultOf(call) {
  try {
    return { value: await call() };
  } catch (err) {
    const kind = kindOf(err);
    if (!kind) {
      throw err;
    }
    return { error: { kind, message: err.message } };
  }
}

// readRun gives the contents of all steps, and up to one before the first, one in the
// middle, and the last.
async function readRun(jobId, runId) {
  const steps = storage.getEventsByRun(jobId, runId, "class").map((e) => e.stepNumber);
  const limits = steps.length ? [steps[0] - 1, steps[steps.length >> 1], steps[steps.length - 1]] : [0];
  const contents = [];
  for (const maxStep of [undefined, ...limits]) {
    contents.push({ maxStep, ...(await resultOf(() => storage.getEventContents(jobId, runId, maxStep))) });
  }
  return {
    runId,
    getEventsByRun: {
      module: await resultOf(() => storage.getEventsByRun(jobId, runId, "module")),
      class: await resultOf(() => storage.getEventsByRun(jobId, runId, "class")),
    },
    getEventContents: contents,
  };
}

async function readJob(jobId, runIds, checkpointIds) {
  const job = {
    jobId,
    retrieveJob: await resultOf(() => storage.retrieveJob(jobId)),
    getCheckpointsByJobId: await resultOf(() => storage.getCheckpointsByJobId(jobId)),
    checkpoints: [],
    runs: [],
  };
  for (const checkpointId of checkpointIds) {
    job.checkpoints.push({ checkpointId, defaultRetrieveCheckpoint: await resultOf(() => storage.defaultRetrieveCheckpoint(jobId, checkpointId)) });
  }
  for (const runId of runIds) {
    job.runs.push(await readRun(jobId, runId));
  }
  return job;
}

// readAll asks for what there is, and for a job, a checkpoint and a run that are not.
async function readAll() {
  const all = { getAllJobs: await resultOf(storage.getAllJobs), getAllRuns: await resultOf(storage.getAllRuns), jobs: [] };
  for (const jobId of storage.directory(storage.getJobsDir(), storage.isFolder)) {
    const files = storage.directory(storage.getCheckpointDir(jobId), (e) => e.isFile() && e.name.endsWith(".json"));
    const runIds = storage.directory(`${storage.getJobDir(jobId)}/runs`, storage.isFolder);
    all.jobs.push(await readJob(jobId, runIds, files.map((name) => name.slice(0, -".json".length))));
  }
  all.missing = await readJob("no-such-job", ["no-such-run"], ["no-such-checkpoint"]);
  return all;
}

const names = Object.keys(storage).filter((name) => typeof storage[name] === "function" && !["NotFound", "directory", "isFolder"].includes(name));

async function perform({ call, args = [], now, rule, runDir }) {
  if (!names.includes(call)) {
    throw new Error(`no such function: ${call}`);
  }
  switch (call) {
    case "createInitialJob":
      return storage.createInitialJob(args[0], args[1], args[2] ?? undefined, now);
    case "getEventsByRun":
      return storage.getEventsByRun(args[0], args[1], rule);
    case "storeRunSetting": {
      const at = (jobId, runId) => `${process.cwd()}/${runDir}`.replaceAll("{jobId}", () => jobId).replaceAll("{runId}", () => runId);
      return storage.storeRunSetting(args[0], undefined, runDir === undefined ? undefined : at, now, rule);
    }
    default:
      return storage[call](...args);
  }
}

const print = (value) => process.stdout.write(JSON.stringify(value) + "\n");

const commands = {
  async read(dir) {
    process.chdir(dir);
    print(await readAll());
  },
  async write(dir) {
    mkdirSync(dir, { recursive: true });
    process.chdir(dir);
    for (const line of readFileSync(0, "utf8").split("\n").filter((l) => l.trim() !== "")) {
      const call = JSON.parse(line);
      print(await resultOf(() => perform(call)));
    }
  },
  async calls(seed, n) {
    callsOf(Number(seed), Number(n), options).forEach(print);
  },
  async generate(seed, n, dir) {
    mkdirSync(dir, { recursive: true });
    process.chdir(dir);
    print(await generate(Number(seed), Number(n), { ...options, perform }));
  },
};

const flags = process.argv.slice(2).filter((a) => a.startsWith("--"));
const [name, ...args] = process.argv.slice(2).filter((a) => !a.startsWith("--"));
const options = { unclear: flags.includes("--unclear"), collide: flags.includes("--collide") };

const known = Object.hasOwn(commands, name ?? "") && args.length === commands[name].length && flags.every((f) => options[f.slice(2)]);
const numbers = ["calls", "generate"].includes(name) ? args.slice(0, 2) : [];
if (!known || !numbers.every((n) => /^\d+$/.test(n))) {
  console.error("usage: node cli.mjs read DIR | write DIR | calls SEED N | generate SEED N DIR [--unclear] [--collide]");
  process.exit(2);
}
await commands[name](...args);
