// The store of tally-evals as its description has it: a folder of files, and nothing else. It
// knows nothing of a log. What it is told on its input it does, one line after the other.
import { readFileSync, writeFileSync, mkdirSync, readdirSync, existsSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";

interface Step { stepIndex: number; input: { role: string; content: string }; output: object[]; timestamp?: string; conversationId?: string }
interface Conversation { id: string; steps: Step[] }
type RunType = "tally" | "trajectory";

class LocalStorage {
  private readonly base: string;
  constructor(base: string) { this.base = base; }
  list(dir: string) { try { return readdirSync(join(this.base, dir), { withFileTypes: true }); } catch { return []; } }
  read(path: string): string { return readFileSync(join(this.base, path), "utf8"); }
  write(path: string, text: string): void { // whole, in place
    mkdirSync(join(this.base, path, ".."), { recursive: true });
    writeFileSync(join(this.base, path), text);
  }
  exists(path: string): boolean { return existsSync(join(this.base, path)); }
}

class RunRef {
  constructor(private readonly storage: LocalStorage, readonly path: string, readonly id: string, readonly type: RunType) {}
  load(): Record<string, unknown> { return JSON.parse(this.storage.read(this.path)); }
  save(data: object): void { this.storage.write(this.path, JSON.stringify(data, null, 2)); }
}

class ConversationRef {
  readonly path: string;
  constructor(private readonly storage: LocalStorage, readonly id: string) { this.path = "conversations/" + id; }
  load(): Conversation {
    const lines = this.storage.read(this.path + "/conversation.jsonl").split("\n").filter((l) => l.trim() !== "");
    if (lines.length === 0) throw new Error("Conversation file is empty");
    const steps: Step[] = lines.map((l) => JSON.parse(l));
    return { id: steps[0].conversationId ?? "unknown", steps };
  }
  save(conversation: Conversation): void {
    const lines = conversation.steps.map((s) => JSON.stringify({ ...s, conversationId: s.conversationId ?? conversation.id }));
    this.storage.write(this.path + "/conversation.jsonl", lines.join("\n"));
  }
  append(step: Step): void {
    const c = this.load();
    c.steps.push(step);
    this.save(c);
  }
  listRuns(): RunRef[] {
    return (["tally", "trajectory"] as const).flatMap((type) => this.storage.list(`${this.path}/runs/${type}`).filter((f) => f.name.endsWith(".json"))
      .map((f) => new RunRef(this.storage, `${this.path}/runs/${type}/${f.name}`, f.name.replace(/\.json$/, ""), type)));
  }
  createRun(type: RunType, id: string): RunRef { return new RunRef(this.storage, `${this.path}/runs/${type}/${id}.json`, id, type); }
}

class TallyStore {
  readonly storage: LocalStorage;
  constructor(base: string) { this.storage = new LocalStorage(base); }
  listConversations(): ConversationRef[] { return this.storage.list("conversations").filter((d) => d.isDirectory()).map((d) => new ConversationRef(this.storage, d.name)); }
  getConversation(id: string): ConversationRef | null { return this.storage.exists("conversations/" + id) ? new ConversationRef(this.storage, id) : null; }
  createConversation(id: string): ConversationRef {
    this.storage.write(`conversations/${id}/meta.json`, JSON.stringify({ id, createdAt: "2026-01-23T12:35:42.341Z" }, null, 2));
    return new ConversationRef(this.storage, id);
  }
}

const store = new TallyStore(process.argv[2]!);
const fail = (why: string): never => { console.error(why); process.exit(1); };
const step = (n: number, text: string): Step => ({ stepIndex: n, input: { role: "user", content: text }, output: [{ role: "assistant", content: "<" + text + ">" }], timestamp: "2026-01-23T12:35:42.341Z" });
const conversation = (id: string): ConversationRef => store.getConversation(id) ?? fail(`${id} is not there`);
const verbs: Record<string, (...args: string[]) => void> = {
  // acknowledged ID N: there are that many steps, each as it was recorded
  acknowledged(id, n) {
    const c = store.getConversation(id)?.load() ?? fail(`${id} is not there`);
    if (c.id !== id || c.steps.length < Number(n)) fail(`${id} has ${c.steps.length} steps of ${n}`);
    c.steps.forEach((s, i) => { if (s.stepIndex !== i || s.input.content !== "text " + i) fail(`step ${i} is ${JSON.stringify(s)}`); });
  },
  meta(id) { if (JSON.parse(store.storage.read(`conversations/${id}/meta.json`)).id !== id) fail("meta.json"); },
  run(id, run, n) {
    const ref = conversation(id).listRuns().find((r) => r.id === run) ?? fail(`no run ${run}`);
    if (ref.load().n !== Number(n)) fail(`run ${run}`);
  },
  same(id) { const c = conversation(id); c.save(c.load()); },
  extend(id, n, text) { conversation(id).append(step(Number(n), text)); },
  change(id, n, text) { const c = conversation(id), d = c.load(); d.steps[Number(n)]!.output = [{ role: "assistant", content: text }]; c.save(d); },
  create(id, text) { store.createConversation(id).save({ id, steps: [step(0, text)] }); },
  save(id, run, n) { conversation(id).createRun("trajectory", run).save({ runId: run, n: Number(n) }); },
  list() { console.log(store.listConversations().map((c) => c.id).sort().join(" ")); },
};
let done = 0;
for await (const line of createInterface({ input: process.stdin })) {
  const [verb, ...args] = line.split(" ");
  (verbs[verb!] ?? fail(`no verb ${verb}`))(...args);
  done++;
}
console.log(done);
