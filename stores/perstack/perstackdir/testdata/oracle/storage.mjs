// The 18 functions of @perstack/storage, written from a description of what they do. It
// is what the Go code is compared with, so it has the weaknesses of the original too: it
// overwrites in place, syncs nothing and locks nothing.
//
// Where the original asks for the time or has two versions, there is a parameter more.

import { existsSync, readFileSync, readdirSync } from "node:fs";
import { mkdir, readFile, writeFile } from "node:fs/promises";
import path from "node:path";
import { checkpointShape, jobShape, runSettingShape } from "./schema.mjs";

// NotFound says that there is no such checkpoint.
export class NotFound extends Error {}

// directory returns the names in a folder in the order of their bytes, or none if there is
// no such folder.
export function directory(dir, only = () => true) {
  if (!existsSync(dir)) {
    return [];
  }
  const names = readdirSync(dir, { withFileTypes: true }).filter(only).map((e) => e.name);
  return names.sort((a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b)));
}

export const isFolder = (entry) => entry.isDirectory();

// parseAll returns the values of those files that can be read and are as they should be.
function parseAll(files, shape = (v) => v) {
  return files.flatMap((file) => {
    try {
      return [parse(file, shape)];
    } catch {
      return [];
    }
  });
}

const parse = (file, shape) => shape(JSON.parse(readFileSync(file, "utf8")), "");

async function write(file, text) {
  await mkdir(path.dirname(file), { recursive: true });
  await writeFile(file, text);
}

// Jobs

export const getJobsDir = () => `${process.cwd()}/perstack/jobs`;
export const getJobDir = (jobId) => `${getJobsDir()}/${jobId}`;

export function createInitialJob(jobId, expertKey, maxSteps, now = Date.now()) {
  const usage = { inputTokens: 0, outputTokens: 0, reasoningTokens: 0, totalTokens: 0, cachedInputTokens: 0 };
  return { id: jobId, status: "running", coordinatorExpertKey: expertKey, totalSteps: 0, maxSteps, usage, startedAt: now };
}

export const storeJob = (job) => write(`${getJobDir(job.id)}/job.json`, JSON.stringify(job, null, 2));

export function retrieveJob(jobId) {
  const file = `${getJobDir(jobId)}/job.json`;
  return existsSync(file) ? parse(file, jobShape) : undefined;
}

export function getAllJobs() {
  const files = directory(getJobsDir(), isFolder).map((jobId) => `${getJobDir(jobId)}/job.json`);
  return parseAll(files, jobShape).sort((a, b) => b.startedAt - a.startedAt);
}

// Checkpoints

export const getCheckpointDir = (jobId) => `${getJobDir(jobId)}/checkpoints`;
export const getCheckpointPath = (jobId, id) => `${getCheckpointDir(jobId)}/${id}.json`;

export const defaultStoreCheckpoint = (cp) => write(getCheckpointPath(cp.jobId, cp.id), JSON.stringify(cp));

export async function defaultRetrieveCheckpoint(jobId, id) {
  const file = getCheckpointPath(jobId, id);
  if (!existsSync(file)) {
    throw new NotFound(`checkpoint not found: ${id}`);
  }
  return parse(file, checkpointShape);
}

export function getCheckpointsByJobId(jobId) {
  const dir = getCheckpointDir(jobId);
  const files = directory(dir).filter((name) => name.endsWith(".json")).map((name) => `${dir}/${name}`);
  return parseAll(files, checkpointShape).sort((a, b) => a.stepNumber - b.stepNumber);
}

// Events

export const defaultGetRunDir = (jobId, runId) => `${getJobDir(jobId)}/runs/${runId}`;

const eventPath = (e) => `${defaultGetRunDir(e.jobId, e.runId)}/event-${e.timestamp}-${e.stepNumber}-${e.type}.json`;

export const defaultStoreEvent = (event) => write(eventPath(event), JSON.stringify(event));

// eventNames are the files of a run that are events by their names, with what the names say.
function eventNames(jobId, runId) {
  const names = directory(defaultGetRunDir(jobId, runId)).filter((name) => name.startsWith("event-"));
  return names.map((name) => {
    const [, timestamp, stepNumber, ...rest] = name.split(".")[0].split("-");
    return { name, timestamp: Number(timestamp), stepNumber: Number(stepNumber), rest };
  });
}

// getEventsByRun has the rule of the module, "module", or that of the class, "class".
export function getEventsByRun(jobId, runId, rule = "module") {
  let found = eventNames(jobId, runId);
  if (rule === "class") {
    found = found.filter((e) => !Number.isNaN(e.timestamp) && !Number.isNaN(e.stepNumber));
  }
  const type = (rest) => (rule === "class" ? rest.join("-") : rest[0]);
  const metas = found.map(({ timestamp, stepNumber, rest }) => ({ timestamp, stepNumber, type: type(rest) }));
  return metas.sort((a, b) => a.stepNumber - b.stepNumber);
}

export function getEventContents(jobId, runId, maxStep) {
  const wanted = eventNames(jobId, runId).filter((e) => maxStep === undefined || e.stepNumber <= maxStep);
  const read = wanted.flatMap(({ name, timestamp }) =>
    parseAll([`${defaultGetRunDir(jobId, runId)}/${name}`]).map((event) => ({ timestamp, event })));
  return read.sort((a, b) => a.timestamp - b.timestamp).map(({ event }) => event);
}

// Run settings

export function createDefaultFileSystem() {
  return {
    exists: (file) => existsSync(file),
    mkdir: (dir) => mkdir(dir, { recursive: true }),
    readFile: (file) => readFile(file, "utf8"),
    writeFile: (file, text) => writeFile(file, text),
  };
}

// storeRunSetting takes a setting for stored if its folder is there, as the module does, or
// if the file is, as the class does.
export async function storeRunSetting(setting, fs = createDefaultFileSystem(), getRunDir = defaultGetRunDir, now = Date.now(), rule = "module") {
  const dir = getRunDir(setting.jobId, setting.runId);
  const file = `${dir}/run-setting.json`;
  if (await fs.exists(rule === "class" ? file : dir)) {
    const stored = runSettingShape(JSON.parse(await fs.readFile(file)), "");
    await fs.writeFile(file, JSON.stringify({ ...stored, updatedAt: now }));
    return;
  }
  await fs.mkdir(dir);
  await fs.writeFile(file, JSON.stringify(setting));
}

export function getAllRuns() {
  const files = directory(getJobsDir(), isFolder).flatMap((jobId) =>
    directory(`${getJobDir(jobId)}/runs`, isFolder).map((runId) => `${defaultGetRunDir(jobId, runId)}/run-setting.json`));
  return parseAll(files, runSettingShape).sort((a, b) => b.updatedAt - a.updatedAt);
}
