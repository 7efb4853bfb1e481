// The store of tally-evals as its description has it: a folder of files, and nothing else. It
// knows nothing of a log. What it is told on its input it does, one line after the other.
import { readFileSync, writeFileSync, mkdirSync, readdirSync, existsSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";

class LocalStorage {
  constructor(base) { this.base = base; }
  list(dir) { try { return readdirSync(join(this.base, dir), { withFileTypes: true }); } catch { return []; } }
  read(path) { return readFileSync(join(this.base, path), "utf8"); }
  write(path, text) { // whole, in place
    mkdirSync(join(this.base, path, ".."), { recursive: true });
    writeFileSync(join(this.base, path), text);
  }
  exists(path) { return existsSync(join(this.base, path)); }
}

class RunRef {
  constructor(storage, path, id, type) { Object.assign(this, { storage, path, id, type }); }
  load() { return JSON.parse(this.storage.read(this.path)); }
  save(data) { this.storage.write(this.path, JSON.stringify(data, null, 2)); }
}

class ConversationRef {
  constructor(storage, id) { Object.assign(this, { storage, id, path: "conversations/" + id }); }
  load() {
    const lines = this.storage.read(this.path + "/conversation.jsonl").split("\n").filter((l) => l.trim() !== "");
    if (lines.length === 0) throw new Error("Conversation file is empty");
    const steps = lines.map((l) => JSON.parse(l));
    return { id: steps[0].conversationId ?? "unknown", steps };
  }
  save(conversation) {
    const lines = conversation.steps.map((s) => JSON.stringify({ ...s, conversationId: s.conversationId ?? conversation.id }));
    this.storage.write(this.path + "/conversation.jsonl", lines.join("\n"));
  }
  append(step) {
    const c = this.load();
    c.steps.push(step);
    this.save(c);
  }
  listRuns() {
    return ["tally", "trajectory"].flatMap((type) => this.storage.list(`${this.path}/runs/${type}`).filter((f) => f.name.endsWith(".json"))
      .map((f) => new RunRef(this.storage, `${this.path}/runs/${type}/${f.name}`, f.name.replace(/\.json$/, ""), type)));
  }
  createRun(type, id) { return new RunRef(this.storage, `${this.path}/runs/${type}/${id}.json`, id, type); }
}

class TallyStore {
  constructor(base) { this.storage = new LocalStorage(base); }
  listConversations() { return this.storage.list("conversations").filter((d) => d.isDirectory()).map((d) => new ConversationRef(this.storage, d.name)); }
  getConversation(id) { return this.storage.exists("conversations/" + id) ? new ConversationRef(this.storage, id) : null; }
  createConversation(id) {
    this.storage.write(`conversations/${id}/meta.json`, JSON.stringify({ id, createdAt: "2026-01-23T12:35:42.341Z" }, null, 2));
    return new ConversationRef(this.storage, id);
  }
}

const store = new TallyStore(process.argv[2]);
const fail = (why) => { console.error(why); process.exit(1); };
const step = (n, text) => ({ stepIndex: n, input: { role: "user", content: text }, output: [{ role: "assistant", content: "<" + text + ">" }], timestamp: "2026-01-23T12:35:42.341Z" });
const verbs = {
  // acknowledged ID N: there are that many steps, each as it was recorded
  acknowledged(id, n) {
    const c = store.getConversation(id)?.load() ?? fail(`${id} is not there`);
    if (c.id !== id || c.steps.length < n) fail(`${id} has ${c.steps.length} steps of ${n}`);
    c.steps.forEach((s, i) => { if (s.stepIndex !== i || s.input.content !== "text " + i) fail(`step ${i} is ${JSON.stringify(s)}`); });
  },
  meta(id) { if (JSON.parse(store.storage.read(`conversations/${id}/meta.json`)).id !== id) fail("meta.json"); },
  run(id, run, n) {
    const ref = store.getConversation(id).listRuns().find((r) => r.id === run) ?? fail(`no run ${run}`);
    if (ref.load().n !== Number(n)) fail(`run ${run}`);
  },
  same(id) { const c = store.getConversation(id); c.save(c.load()); },
  extend(id, n, text) { store.getConversation(id).append(step(Number(n), text)); },
  change(id, n, text) { const c = store.getConversation(id), d = c.load(); d.steps[n].output = [{ role: "assistant", content: text }]; c.save(d); },
  create(id, text) { store.createConversation(id).save({ id, steps: [step(0, text)] }); },
  save(id, run, n) { store.getConversation(id).createRun("trajectory", run).save({ runId: run, n: Number(n) }); },
  list() { console.log(store.listConversations().map((c) => c.id).sort().join(" ")); },
};
let done = 0;
for await (const line of createInterface({ input: process.stdin })) {
  const [verb, ...args] = line.split(" ");
  verbs[verb](...args);
  done++;
}
console.log(done);
