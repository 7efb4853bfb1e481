// A folder of jobs with all that real ones may have: files that another writer wrote or
// that are damaged, and files that are none of it.

import { existsSync, mkdirSync, readFileSync, readdirSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import path from "node:path";
import { callsOf } from "./jobs.mjs";
import { Random } from "./random.mjs";

// Raw is a value that is written as this text.
class Raw {
  constructor(text) {
    this.text = text;
  }
}

const oddNumbers = ["1.0", "1e3", "-0", "1E+2", "0.30000000000000004", "9007199254740993", "12345678901234567890", "5e-324",
  "1.7976931348623157e308", "1e-7", "100000000000000000000000", "0.000001"];

// styles are the ways of another writer, by name: what render takes for it.
const styles = {
  "another order of keys": { shuffle: true },
  "unknown members": { unknown: true },
  "escaped text": { ascii: true },
  "four spaces and a final newline": { newline: "\n", indent: "    ", last: "\n" },
  "tabs and CRLF": { newline: "\r\n", indent: "\t", last: "\r\n" },
  "spaces around": { space: "  ", last: " \n" },
  "integers with a fraction": { number: (n) => `${n}.0` },
  "integers with an exponent": { number: (n) => `${n}e0` },
  "keys twice": { twice: true },
  "all at once": { shuffle: true, unknown: true, ascii: true, newline: "\n", indent: " ", number: (n) => `${n}.00`, twice: true, last: "\n" },
};

// hasShape reports whether an object is one whose members are known, so that another is
// an unknown one.
const hasShape = (v) => "jobId" in v || "startedAt" in v || "inputTokens" in v || "version" in v || ("type" in v && "id" in v);

function unknownMembers(random) {
  const inner = { [random.text()]: random.text(), number: new Raw(random.pick(oddNumbers)), 10: 1, 2: null };
  return [["x-" + random.text(), new Raw(random.pick(oddNumbers))], ["future", [inner, [], {}, false, null]]];
}

function membersOf(v, style, random) {
  let members = Object.entries(v);
  if (style.unknown && hasShape(v)) {
    members = [...members, ...unknownMembers(random)];
  }
  if (style.shuffle) {
    members = random.shuffled(members);
  }
  if (style.twice && members.length) {
    members.splice(0, 0, [random.pick(members)[0], "not this one"]);
  }
  return members;
}

const escape = (text) => text.replace(/[\u007f-\uffff/]/g, (c) => (c === "/" ? "\\/" : "\\u" + c.charCodeAt(0).toString(16).padStart(4, "0")));

// render writes a value in a style.
function render(v, style, random, depth = 0) {
  if (v instanceof Raw) {
    return v.text;
  }
  if (typeof v === "string") {
    return style.ascii ? escape(JSON.stringify(v)) : JSON.stringify(v);
  }
  if (typeof v !== "object" || v === null) {
    const plain = JSON.stringify(v);
    return style.number && /^-?\d+$/.test(plain) ? style.number(plain) : plain;
  }
  const inner = (x) => render(x, style, random, depth + 1);
  const space = style.space ?? "";
  const items = Array.isArray(v) ? v.map(inner) : membersOf(v, style, random).map(([key, x]) => `${inner(key)}${space}:${space}${inner(x)}`);
  const [open, close] = Array.isArray(v) ? "[]" : "{}";
  if (items.length === 0) {
    return open + close;
  }
  const line = (n) => (style.newline ?? space) + (style.indent ?? "").repeat(n);
  return open + line(depth + 1) + items.join("," + line(depth + 1)) + line(depth) + close;
}

// broken are texts that no parser of JSON takes; of another shape is what a parser takes,
// and the schema does not.
const broken = {
  "empty": () => "",
  "cut short": (text) => text.slice(0, text.length >> 1),
  "no JSON": () => "not JSON\n",
  "after a byte order mark": (text) => "\ufeff" + text,
  "with more behind it": (text) => text + "}",
};
const shapeless = {
  "a list": (v) => [v],
  "null": () => null,
  "without an id": ({ id, jobId, ...rest }) => rest,
  "usage that is no number": (v) => ({ ...v, usage: { ...v.usage, inputTokens: "1" }, updatedAt: "1" }),
  "of an unknown status": (v) => ({ ...v, status: "paused", reasoningBudget: "lots" }),
};

// A Turn gives one after the other of some names, so that each comes up.
class Turn {
  constructor(things) {
    this.entries = Object.entries(things);
    this.n = 0;
  }

  next() {
    return this.entries[this.n++ % this.entries.length];
  }
}

function walk(dir) {
  const entries = readdirSync(dir, { withFileTypes: true }).sort((a, b) => Buffer.compare(Buffer.from(a.name), Buffer.from(b.name)));
  return entries.flatMap((e) => (e.isDirectory() ? walk(path.join(dir, e.name)) : [path.join(dir, e.name)]));
}

const kindOf = (file) => {
  const name = path.basename(file);
  return name === "job.json" || name === "run-setting.json" ? name : name.startsWith("event-") ? "event" : "checkpoint";
};

// spoil rewrites some files in another style and damages others, and counts what it did.
function spoil(random, made) {
  const count = (what) => (made[what] = (made[what] ?? 0) + 1);
  const turns = {};
  const turn = (kind, what, things) => (turns[`${kind} ${what}`] ??= new Turn(things)).next();
  for (const file of walk("perstack/jobs")) {
    const [kind, text, chance] = [kindOf(file), readFileSync(file, "utf8"), random.next()];
    const rare = kind === "event" || kind === "checkpoint" ? 0.04 : 0.16;
    if (chance < rare) {
      const [name, damage] = turn(kind, "broken", broken);
      writeFileSync(file, damage(text));
      count(`${kind}: ${name}`);
    } else if (chance < 2 * rare && kind !== "event") {
      const [name, damage] = turn(kind, "shapeless", shapeless);
      writeFileSync(file, JSON.stringify(damage(JSON.parse(text))));
      count(`${kind}: ${name}`);
    } else if (chance < 0.5) {
      const [name, style] = turn(kind, "style", styles);
      const last = style.last ?? "";
      writeFileSync(file, render(JSON.parse(text), style, random) + last);
      count(`${kind}: ${name}`);
    }
  }
}

const at = 1760000000123;

// foreign are files of a folder that are none of the original's, and names that it takes
// for events and others do not. $ is the folder of a job, $$ that of a run.
const foreign = {
  "perstack/README.md": "# Not ours\n",
  "perstack/jobs/.DS_Store": "\u0000\u0001Bud1",
  "perstack/jobs/notes.json": "{}",
  "perstack/jobs/empty-job/.keep": "",
  "$/job.json.bak": "{}",
  "$/notes.md": "é\n",
  "$/checkpoints/notes.txt": "x",
  "$/checkpoints/package.json": '{"name":"x"}',
  "$/checkpoints/old/deep.json": "{}",
  "$/runs/notes.txt": "x",
  "$/runs/empty-run/.keep": "",
  "$$/stderr.log": "\u001b[31mno\n",
  [`$$/checkpoint-${at}-1-abc.json`]: '{"id":"abc"}',
  [`$$/event-${at}-2-type-with-dashes.json`]: '{"type":"type-with-dashes"}',
  "$$/event-now-1-callTools.json": "not JSON",
  [`$/runs/nan-run/event-${at}-x-callTools.json`]: "not JSON",
  [`$/runs/nan-run/event-${at}-y-callTools.json`]: "not JSON",
};

// unclear are those of which the description does not say what becomes of them.
const unclear = {
  [`$$/event-${at}-1.json`]: "{}",
  [`$$/event--${at}-1-negative.json`]: '{"timestamp":-5,"stepNumber":1,"type":"negative"}',
  [`$$/event-${at}--1-negative.json`]: '{"stepNumber":-1,"type":"negative"}',
  [`$$/event-1.5-3-fraction.json`]: "{}",
  [`$$/event-${at}-3-dots.in.it.json`]: '{"type":"dots.in.it"}',
  [`$$/event-${at}-3-callTools.json.tmp`]: '{"type":"tmp"}',
  [`$$/event-${at}-3-noEnding`]: '{"type":"noEnding"}',
  "$$/event-0x10-1e0-spelled.json": '{"type":"spelled"}',
  "$$/event-999-1-short.json": '{"type":"short"}',
  "$$/event-1000-1-short.json": '{"type":"longer"}',
  "$$/event-.json": "{}",
  [`$$/event-${at}-z-among.json`]: '{"type":"among"}',
  [`$$/event-${at}-1-null.json`]: "null",
  [`$$/event-${at}-1-another.json`]: '{"timestamp":1,"stepNumber":99,"type":"callTools"}',
  [`$$/event-${at}-1-infinite.json`]: '{"n":1e400}',
  [`$$/event-${at}-1-folder.json/x`]: "{}",
  "$/checkpoints/folder.json/x": "{}",
};

function put(files, jobs, runs) {
  Object.entries(files).forEach(([name, text], i) => {
    const file = name.replace("$$", () => runs[i % runs.length]).replace("$", () => jobs[i % jobs.length]);
    mkdirSync(path.dirname(file), { recursive: true });
    writeFileSync(file, text);
  });
}

// unclearJobs changes whole jobs: a job that is a link, a member that is null, settings of
// one time.
function unclearJobs(jobs) {
  symlinkSync(path.basename(jobs[0]), "perstack/jobs/link");
  for (const job of jobs) {
    for (const file of walk(job).filter((f) => ["job.json", "run-setting.json"].includes(path.basename(f)))) {
      const text = readFileSync(file, "utf8");
      const odd = kindOf(file) === "job.json" ? text.replace(/"startedAt"/, '"maxSteps": null, "startedAt"') : text.replace(/"updatedAt":\d+/, '"updatedAt":5');
      writeFileSync(file, job === jobs[0] || kindOf(file) !== "job.json" ? odd : text);
    }
  }
}

// generate writes n jobs below the working directory, and returns how often it made each odd thing.
export async function generate(seed, n, options) {
  const made = { calls: 0 };
  for (const call of callsOf(seed, n, options)) {
    await options.perform(call);
    made.calls++;
  }
  const jobs = readdirSync("perstack/jobs").sort().map((id) => `perstack/jobs/${id}`);
  const runs = jobs.flatMap((job) => readdirSync(`${job}/runs`).sort().map((id) => `${job}/runs/${id}`));
  spoil(new Random(seed + 1), made);
  rmSync(`${jobs[0]}/checkpoints`, { recursive: true });
  put(foreign, jobs, runs);
  if (options.unclear) {
    put(unclear, jobs, runs);
    unclearJobs(jobs);
  }
  const without = (name, dirs) => dirs.filter((dir) => !existsSync(`${dir}/${name}`)).length;
  made["jobs without job.json"] = without("job.json", jobs);
  made["runs without run-setting.json"] = without("run-setting.json", runs);
  made["jobs without checkpoints"] = 1;
  made.files = walk("perstack").length;
  return made;
}
