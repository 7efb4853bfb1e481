// Appends events to a tally store as docs/wire.md describes it, and as nothing else
// does: through the service of the process that owns the store, or by publishing to the
// stream of a server that others run.
//
//   node producer.mjs service PATH-OF-owner.json < appends
//   node producer.mjs direct URL < appends
//
// Each line of the input is an append: {"subject", "expect", "events": [{attributes ...,
// "data": the data as text}]}. Each line of the output is the server's answer.

import { createHash, randomUUID } from "node:crypto";
import { readFileSync } from "node:fs";
import { connect, headers } from "@nats-io/transport-node";
import { jetstream } from "@nats-io/jetstream";

const encoder = new TextEncoder();

// escape gives an id the form that it has in a subject.
function escape(id) {
  const hex = (b) => "=" + b.toString(16).toUpperCase().padStart(2, "0");
  const plain = (b) => /[A-Za-z0-9_-]/.test(String.fromCharCode(b));
  return [...encoder.encode(id)].map((b) => (plain(b) ? String.fromCharCode(b) : hex(b))).join("");
}

// partition is 32-bit FNV-1a modulo 64.
function partition(text) {
  let h = 2166136261;
  for (const b of encoder.encode(text)) {
    h = Math.imul(h ^ b, 16777619) >>> 0;
  }
  return (h % 64).toString(16).padStart(2, "0");
}

function natsSubject(namespace, id) {
  const rest = `${namespace}.session.${escape(id)}`;
  return `tally.v1.${partition(rest)}.${rest}`;
}

function msgID(subject, source, id) {
  return createHash("sha256").update(`${subject}\0${source}\0${id}`).digest().subarray(0, 16).toString("base64url");
}

// percent encodes the value of a header.
function percent(value) {
  const plain = (b) => b > 0x20 && b < 0x7f && b !== 0x22 && b !== 0x25;
  const hex = (b) => "%" + b.toString(16).toUpperCase().padStart(2, "0");
  return [...encoder.encode(value)].map((b) => (plain(b) ? String.fromCharCode(b) : hex(b))).join("");
}

// cloudEvent is the JSON form of an event, with its data as they were written.
function cloudEvent({ data, ...attributes }) {
  return JSON.stringify({ specversion: "1.0", ...attributes }).slice(0, -1) + `,"data":${data}}`;
}

// service appends through the owner: numbered, without waiting for the answers.
async function service(file, appends) {
  const owner = JSON.parse(readFileSync(file, "utf8"));
  const nc = await connect({ servers: owner.url, user: owner.user, pass: owner.token });
  const producer = randomUUID();
  const answers = appends.map(({ subject, expect, events }, i) => {
    const request = JSON.stringify({ subject: `session/${escape(subject)}`, expect, producer, number: i + 1 });
    return nc.request("tally.api.v1.append", request.slice(0, -1) + `,"events":[${events.map(cloudEvent).join(",")}]}`, { timeout: 10000 });
  });
  const list = (await Promise.all(answers)).map((m) => m.json());
  const watermark = await nc.request("tally.api.v1.watermark");
  await nc.close();
  return [...list, watermark.json()];
}

// message gives the headers of an event.
function message(subject, { id, source, data, ...attributes }) {
  const h = headers();
  h.set("Nats-Msg-Id", msgID(subject, source, id));
  h.set("Nats-Expected-Stream", "TALLY_1");
  h.set("ce-specversion", "1.0");
  for (const [name, value] of Object.entries({ id, source, ...attributes })) {
    h.set(`ce-${name}`, percent(value));
  }
  h.set("Content-Type", "application/json");
  return h;
}

// direct publishes, one append after the other. Nobody else writes to the subject, so
// that its last offset is that of the last answer.
async function direct(url, appends) {
  const nc = await connect({ servers: url });
  const js = jetstream(nc);
  const list = [];
  let last = 0;
  for (const { subject, expect, events } of appends) {
    const to = natsSubject("default", subject);
    const messages = events.map((e) => message(to, e));
    if (expect) {
      messages[0].set("Nats-Expected-Last-Subject-Sequence", `${last}`);
    }
    let ack;
    if (events.length === 1) {
      ack = await js.publish(to, events[0].data, { headers: messages[0] });
    } else {
      const batch = randomUUID();
      messages.forEach((h, i) => {
        h.set("Nats-Batch-Id", batch);
        h.set("Nats-Batch-Sequence", `${i + 1}`);
      });
      for (const [i, e] of events.slice(0, -1).entries()) {
        nc.publish(to, e.data, { headers: messages[i] });
      }
      messages.at(-1).set("Nats-Batch-Commit", "1");
      ack = (await nc.request(to, events.at(-1).data, { headers: messages.at(-1), timeout: 10000 })).json();
    }
    last = Math.max(last, ack.seq);
    list.push({ ...ack });
  }
  await nc.close();
  return list;
}

const [way, where] = process.argv.slice(2);
const appends = readFileSync(0, "utf8").trim().split("\n").map((line) => JSON.parse(line));
const answers = way === "service" ? await service(where, appends) : await direct(where, appends);
for (const answer of answers) {
  console.log(JSON.stringify(answer));
}
