// Random values that a seed decides.

export class Random {
  constructor(seed) {
    this.state = seed >>> 0;
  }

  // next is a number from 0 to below 1 (mulberry32).
  next() {
    this.state = (this.state + 0x6d2b79f5) >>> 0;
    let t = this.state;
    t = Math.imul(t ^ (t >>> 15), t | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  }

  int(min, max) {
    return min + Math.floor(this.next() * (max - min + 1));
  }

  pick(list) {
    return list[this.int(0, list.length - 1)];
  }

  chance(p) {
    return this.next() < p;
  }

  shuffled(list) {
    const left = [...list];
    return list.map(() => left.splice(this.int(0, left.length - 1), 1)[0]);
  }

  // id looks like a cuid2.
  id() {
    const letters = "abcdefghijklmnopqrstuvwxyz0123456789";
    return letters[this.int(0, 25)] + Array.from({ length: 23 }, () => this.pick(letters)).join("");
  }

  text() {
    const words = ["Grüße", "旅行 🧳", "<b>&amp;</b>", "line\nbreak\ttab", "\u2028between\u2029", "\u001b[31mred", "\u0000", "lone \ud83d half",
      "e\u0301 is not é", "\"quoted\" \\ path", "مرحبا", "plain", "/slash/", "\u007f\u0085"];
    return Array.from({ length: this.int(1, 6) }, () => this.pick(words)).join(" ");
  }
}
